/* Makes the n-th call of a system call fail in some processes of a tree. strace's inject counts in
 * each process too, but cannot leave out the processes above the one that is meant.
 *
 *   inject PROGRAM ARG...
 *
 * prctl(BEGIN, depth, call, errno, n), which the kernel does not know, says what is to fail: depth
 * is 0 for PROGRAM, 1 for its children, 2 for theirs. Each process counts by itself. prctl(END)
 * ends it and returns 1000 times the number of processes that are left, and the number of calls
 * that failed. x86-64 only. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BEGIN = 0x50594e4a,
    END = 0x50594e4b,
    PROCESSES = 1024,
    OPTIONS = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
        PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL,
};

struct process {
    pid_t pid; /* 0: this place is free */
    int depth;
    unsigned long long count;
    bool begun;
    bool waits;   /* stopped before its parent told whose child it is */
    bool answers; /* the call that it is in returns `answer` */
    long long answer;
};

static struct process processes[PROCESSES];
static unsigned long long depth, call, error, n;
static int failed;
static bool injects;

static struct process *process_of(pid_t pid) {
    struct process *free_place = NULL;
    for (int i = 0; i < PROCESSES; i++) {
        if (processes[i].pid == pid) {
            return &processes[i];
        }
        free_place = free_place || processes[i].pid ? free_place : &processes[i];
    }
    if (!free_place) {
        exit(3);
    }
    *free_place = (struct process){.pid = pid, .depth = -1};
    return free_place;
}

static int below_the_program(void) {
    int count = 0;
    for (int i = 0; i < PROCESSES; i++) {
        count += processes[i].pid && processes[i].depth > 0;
    }
    return count;
}

static void enter(struct process *self, struct user_regs_struct *registers) {
    unsigned long long number = registers->orig_rax;
    if (number == SYS_prctl && registers->rdi == BEGIN) {
        depth = registers->rsi;
        call = registers->rdx;
        error = registers->r10;
        n = registers->r8;
        injects = true;
        failed = 0;
        for (int i = 0; i < PROCESSES; i++) {
            processes[i].count = 0;
        }
    } else if (number == SYS_prctl && registers->rdi == END) {
        injects = false;
        self->answers = true;
        self->answer = failed + 1000 * below_the_program();
    } else if (injects && (unsigned long long)self->depth == depth && number == call &&
               ++self->count == n) {
        self->answers = true;
        self->answer = -(long long)error;
        failed++;
        registers->orig_rax = (unsigned long long)-1;
        ptrace(PTRACE_SETREGS, self->pid, NULL, registers);
    }
}

static void at_call(struct process *self) {
    struct __ptrace_syscall_info info = {0};
    struct user_regs_struct registers;
    ptrace(PTRACE_GET_SYSCALL_INFO, self->pid, sizeof info, &info);
    ptrace(PTRACE_GETREGS, self->pid, NULL, &registers);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        enter(self, &registers);
    } else if (self->answers) {
        registers.rax = (unsigned long long)self->answer;
        ptrace(PTRACE_SETREGS, self->pid, NULL, &registers);
        self->answers = false;
    }
}

static void adopt(const struct process *parent, pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d", parent->pid, pid);
    struct process *self = process_of(pid);
    self->depth = parent->depth + (access(path, F_OK) != 0); /* else a thread */
    if (self->waits) {
        self->waits = false;
        ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    }
}

int main(int argc, char **argv) {
    pid_t root = argc > 1 ? fork() : -1;
    if (root == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    int status, result = 0;
    waitpid(root, &status, 0);
    ptrace(PTRACE_SETOPTIONS, root, NULL, OPTIONS);
    *process_of(root) = (struct process){.pid = root, .begun = true};
    ptrace(PTRACE_SYSCALL, root, NULL, NULL);
    for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;) {
        struct process *self = process_of(pid);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            self->pid = 0;
            if (pid == root) {
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            }
            continue;
        }
        int number = WSTOPSIG(status), event = status >> 16;
        if (number == (SIGTRAP | 0x80)) {
            at_call(self);
        } else if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK ||
                   event == PTRACE_EVENT_VFORK) {
            unsigned long child = 0;
            ptrace(PTRACE_GETEVENTMSG, pid, NULL, &child);
            adopt(self, (pid_t)child);
        }
        bool is_ours = number == (SIGTRAP | 0x80) || event || (number == SIGSTOP && !self->begun);
        self->begun = true;
        self->waits = self->depth < 0;
        if (self->waits) {
            continue;
        }
        ptrace(PTRACE_SYSCALL, pid, NULL, is_ours ? 0 : number);
    }
    return result;
}
