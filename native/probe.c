#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "kernel.h"
#include "wire.h"

enum {
    /* The helper holds the same deadline and answers by itself; this much later it is too late. */
    GRACE_MS = 500,
    /* For it to end when told to: it takes 150 ms at most. One that a target traces never does. */
    END_MS = 300,
    /* How often to look whether the helper is dead although its pipe is open: a fork by another
     * thread of the caller may hold a copy of the write end. */
    LOOK_MS = 20,
    REAP_MS = 1000,
};

static void close_fd(int32_t *fd) {
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
        *fd = -1;
    }
}

static int fail(struct pyr_probe *probe, const char *call, int error) {
    probe->failed_call = call;
    probe->sys_errno = error;
    return probe->status = PYR_PROBE_FAILED;
}

/* A pipe whose write end lies above the descriptors that the helper gets: dup2 of a descriptor onto
 * itself would leave it close-on-exec. */
static int pipe_open(int32_t *read_end, int32_t *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return -1;
    }
    *read_end = ends[0];
    *write_end = ends[1];
    if (ends[1] <= PYR_WIRE_STUB_FD) {
        *write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, PYR_WIRE_STUB_FD + 1);
        int saved = errno == EINVAL ? EMFILE : errno; /* EINVAL: beyond RLIMIT_NOFILE */
        close(ends[1]);
        errno = saved;
    }
    if (*write_end < 0) {
        close_fd(read_end);
        return -1;
    }
    fcntl(*read_end, F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn_with(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes,
                      int32_t *pid, const char *helper, char *const argv[], char *const envp[],
                      int report, int capture) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    const short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    int error = posix_spawnattr_setflags(attributes, flags);
    error = error ? error : posix_spawnattr_setpgroup(attributes, 0);
    error = error ? error : posix_spawnattr_setsigmask(attributes, &none);
    error = error ? error : posix_spawnattr_setsigdefault(attributes, &all);
    error = error ? error : posix_spawn_file_actions_adddup2(actions, report, PYR_WIRE_REPORT_FD);
    error = error ? error : posix_spawn_file_actions_adddup2(actions, capture, STDERR_FILENO);
    error = error
                ? error
                : posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    error =
        error ? error
              : posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    return error ? error : posix_spawn(pid, helper, actions, attributes, argv, envp);
}

static int spawn(int32_t *pid, const char *helper, char *const argv[], char *const envp[],
                 int report, int capture) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) {
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = spawn_with(&actions, &attributes, pid, helper, argv, envp, report, capture);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

void pyr_probe_init(struct pyr_probe *probe) {
    memset(probe, 0, offsetof(struct pyr_probe, frames));
    probe->pid = probe->report_fd = probe->capture_fd = -1;
}

int pyr_probe_start(struct pyr_probe *probe, const char *helper, char *const argv[],
                    char *const envp[], uint64_t nonce, int64_t timeout_ns) {
    probe->nonce = nonce;
    probe->started_ns = now_ns();
    probe->deadline_ns = probe->started_ns + timeout_ns + GRACE_MS * NS_PER_MS;
    int32_t report = -1, capture = -1;
    if (pipe_open(&probe->report_fd, &report) < 0 || pipe_open(&probe->capture_fd, &capture) < 0) {
        fail(probe, "pipe2", errno);
    } else {
        int error = spawn(&probe->pid, helper, argv, envp, report, capture);
        if (error) {
            probe->pid = -1;
            fail(probe, "posix_spawn", error);
        }
    }
    close_fd(&report);
    close_fd(&capture);
    return probe->status;
}

void pyr_strings_point(char *array[], char *text, size_t count) {
    for (size_t i = 0; i < count; i++) {
        array[i] = text;
        text += strlen(text) + 1;
    }
}

int64_t pyr_wire_scan(const char *bytes, size_t length, uint64_t nonce, int *done) {
    size_t at = 0;
    *done = 0;
    while (length - at >= PYR_WIRE_HEAD_SIZE) {
        struct pyr_wire_frame head;
        memcpy(&head, bytes + at, sizeof head);
        if (head.magic != PYR_WIRE_MAGIC || head.version != PYR_WIRE_VERSION ||
            head.nonce != nonce || head.kind < PYR_WIRE_HELLO || head.kind > PYR_WIRE_FINISHED ||
            head.length > PYR_WIRE_TEXT_MAX) {
            return -1;
        }
        if (head.length > length - at - PYR_WIRE_HEAD_SIZE) {
            break;
        }
        *done = head.kind == PYR_WIRE_DONE || head.kind == PYR_WIRE_FAILED;
        at += PYR_WIRE_HEAD_SIZE + head.length;
    }
    return (int64_t)at;
}

/* Takes what is in the report pipe. Returns false at its end. */
static bool take_frames(struct pyr_probe *probe) {
    for (;;) {
        uint32_t used = probe->frames_used + probe->frames_pending;
        ssize_t got = read(probe->report_fd, probe->frames + used, sizeof probe->frames - used);
        if (got < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                fail(probe, "read", errno);
            }
            return true;
        }
        if (got == 0) {
            /* End of the pipe; or a full buffer, which no helper of ours fills. */
            return false;
        }
        int done = 0;
        size_t fresh = probe->frames_pending + (size_t)got;
        int64_t whole =
            pyr_wire_scan(probe->frames + probe->frames_used, fresh, probe->nonce, &done);
        if (whole < 0) {
            probe->status = PYR_PROBE_GARBLED;
            return true;
        }
        probe->frames_used += (uint32_t)whole;
        probe->frames_pending = (uint32_t)(fresh - (size_t)whole);
        if (done) {
            probe->status = PYR_PROBE_DONE;
            return true;
        }
    }
}

/* Makes room at the end of a full capture by dropping from its middle: what a loader or a program
 * has to say is at the beginning or at the end. */
static void capture_shift(struct pyr_probe *probe) {
    char *middle = probe->capture + sizeof probe->capture / 2;
    memmove(middle, middle + PIPE_BUF, sizeof probe->capture / 2 - PIPE_BUF);
    probe->capture_used -= PIPE_BUF;
}

/* Takes what is in the capture pipe, so that the writer never blocks. Bounded, so that a target
 * which prints without end cannot keep the caller here past its deadline. */
static bool take_capture(struct pyr_probe *probe) {
    for (int turn = 0; turn < 64; turn++) {
        if (probe->capture_used == sizeof probe->capture) {
            capture_shift(probe);
        }
        ssize_t got = read(probe->capture_fd, probe->capture + probe->capture_used,
                           sizeof probe->capture - probe->capture_used);
        if (got <= 0) {
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        }
        probe->capture_used += (uint32_t)got;
    }
    return true;
}

/* Is the helper gone, by whatever way? It is not reaped here: as long as it is a zombie its pid
 * cannot belong to anybody else. */
static bool helper_is_gone(struct pyr_probe *probe) {
    siginfo_t info = {.si_pid = 0};
    int answer = waitid(P_PID, (id_t)probe->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return answer < 0 ? errno == ECHILD : info.si_pid == probe->pid;
}

int pyr_probe_wait(struct pyr_probe *probe) {
    int64_t left = probe->deadline_ns - now_ns();
    if (probe->status != PYR_PROBE_RUNNING) {
        return probe->status;
    }
    if (left <= 0) {
        return probe->status = PYR_PROBE_TIMED_OUT;
    }
    struct pollfd fds[2] = {
        {.fd = probe->report_fd, .events = POLLIN},
        {.fd = probe->capture_fd, .events = POLLIN}, /* ignored if it is -1 */
    };
    int64_t slice = left / NS_PER_MS + 1;
    int ready = poll(fds, 2, (int)(slice < LOOK_MS ? slice : LOOK_MS));
    if (ready < 0) {
        return errno == EINTR ? PYR_PROBE_RUNNING : fail(probe, "poll", errno);
    }
    bool gone = ready == 0 && helper_is_gone(probe);
    if (fds[1].revents && !take_capture(probe)) {
        close_fd(&probe->capture_fd);
    }
    /* One that is gone may have answered between the two looks. */
    if ((fds[0].revents || gone) && !take_frames(probe)) {
        gone = true;
    }
    if (gone && probe->status == PYR_PROBE_RUNNING) {
        probe->status = PYR_PROBE_DIED;
    }
    return probe->status;
}

/* Waits until the helper is a zombie, at most `milliseconds`. If the kernel has no pidfd (before
 * 5.3) it is looked for again and again. */
static bool wait_for_end(struct pyr_probe *probe, int milliseconds) {
    int64_t limit = now_ns() + milliseconds * NS_PER_MS;
    struct pollfd fd = {.fd = pyr_pidfd_open(probe->pid), .events = POLLIN};
    bool gone = helper_is_gone(probe);
    while (!gone && now_ns() < limit) {
        poll(&fd, 1, fd.fd < 0 ? 1 : milliseconds);
        gone = helper_is_gone(probe);
    }
    close_fd(&fd.fd);
    return gone;
}

/* A helper that is told to end kills all that its target has started, then ends; SIGKILL would
 * leave those behind. One that is done is ending already. One that was reaped by somebody else must
 * not be signalled: its pid may be anyone's. */
static void end(struct pyr_probe *probe) {
    if (!helper_is_gone(probe)) {
        kill(probe->pid, SIGTERM);
        kill(probe->pid, SIGCONT); /* its target may have stopped it */
    }
    if (!wait_for_end(probe, END_MS)) {
        kill(probe->pid, SIGKILL);
        /* An uninterruptible sleep outlasts even that. */
        probe->stuck = !wait_for_end(probe, REAP_MS);
    }
    int status = 0;
    if (!probe->stuck && waitpid(probe->pid, &status, WNOHANG) == probe->pid) {
        probe->wait_known = 1;
        probe->wait_status = status;
    }
}

void pyr_probe_finish(struct pyr_probe *probe) {
    if (probe->pid > 0 && !probe->stuck) {
        end(probe);
        if (probe->capture_fd >= 0) {
            take_capture(probe);
        }
        probe->pid = probe->stuck ? probe->pid : -1;
        probe->elapsed_ns = now_ns() - probe->started_ns;
    }
    close_fd(&probe->report_fd);
    close_fd(&probe->capture_fd);
}
