/* The caller's side of a probe: spawn the helper, collect its frames and what it prints on stderr,
 * hold the deadline, kill, reap. Three calls, so that an interpreter can run its signal handlers
 * in between, and one that makes pyr_probe_finish safe from the first moment on:
 *
 *     pyr_probe_init(&probe);
 *     pyr_probe_start(&probe, helper, argv, envp, nonce, timeout_ns);
 *     while (pyr_probe_wait(&probe) == PYR_PROBE_RUNNING) { ... }
 *     pyr_probe_finish(&probe);
 *
 * This is the only code of the project that runs in the user's process and starts another. It never
 * forks, loads nothing, allocates nothing, takes no lock and keeps no state outside `probe`.
 */
#ifndef PYR_PROBE_H
#define PYR_PROBE_H

#include <stddef.h>
#include <stdint.h>

enum {
    PYR_PROBE_FRAMES_SIZE = 1 << 19,
    PYR_PROBE_CAPTURE_SIZE = 1 << 16,
};

enum pyr_probe_status {
    PYR_PROBE_RUNNING = 0,
    PYR_PROBE_DONE,      /* the helper said that it was done */
    PYR_PROBE_DIED,      /* it ended before it was done: see wait_known, wait_status */
    PYR_PROBE_TIMED_OUT, /* it did not answer in time and was killed */
    PYR_PROBE_GARBLED,   /* what came was no frame of this probe */
    PYR_PROBE_FAILED,    /* a system call failed: see failed_call and sys_errno */
};

struct pyr_probe {
    int32_t status; /* enum pyr_probe_status */
    int32_t sys_errno;
    const char *failed_call;
    int32_t pid;
    int32_t wait_known; /* 1: wait_status is the helper's; 0: somebody else reaped it (ECHILD) */
    int32_t wait_status;
    int32_t stuck; /* 1: killed but not gone within the grace time; it is left behind as `pid` */
    int32_t report_fd;
    int32_t capture_fd;
    uint64_t nonce;
    int64_t started_ns;
    int64_t deadline_ns;
    int64_t elapsed_ns;
    uint32_t frames_used;    /* whole frames, all of them valid */
    uint32_t frames_pending; /* bytes after them of a frame that is not complete */
    uint32_t capture_used;
    char frames[PYR_PROBE_FRAMES_SIZE];
    char capture[PYR_PROBE_CAPTURE_SIZE];
};

void pyr_probe_init(struct pyr_probe *probe);

/* Returns probe->status: RUNNING or FAILED. */
int pyr_probe_start(struct pyr_probe *probe, const char *helper, char *const argv[],
                    char *const envp[], uint64_t nonce, int64_t timeout_ns);

/* Returns RUNNING after some milliseconds or a signal, else when the helper is done, dead or late.
 * Not later: a signal that came just before the wait, or in another thread, interrupts nothing. */
int pyr_probe_wait(struct pyr_probe *probe);

/* Kills what still runs, reaps it and closes both descriptors. Harmless when nothing
 * was started, and when called twice. */
void pyr_probe_finish(struct pyr_probe *probe);

/* Lets array[0] to array[count - 1] point to the NUL-terminated strings that follow one another at
 * `text`. The caller terminates the array. */
void pyr_strings_point(char *array[], char *text, size_t count);

/* How many of the `length` bytes at `bytes` are whole, valid frames of this nonce; -1 if one is
 * not. Sets *done if the last of them says that the helper is done. */
int64_t pyr_wire_scan(const char *bytes, size_t length, uint64_t nonce, int *done);

#endif
