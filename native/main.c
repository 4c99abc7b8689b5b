/* pyresolve-probe: is a library fit to be loaded? One line and an exit status, for probes that
 * cannot afford to start an interpreter.
 *
 * Three processes, so that whatever a library does the answer comes, and in time: this one only
 * waits; its child supervises the trials; theirs is the helper, which is dynamic and loads the
 * library. This program is static, so that an environment in which no dynamic one starts is
 * something that it can report.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trial.h"

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* Below 1 s, which is the default of a Kubernetes probe, by what ending takes at worst. */
#define TIMEOUT_DEFAULT "0.8"
#define TIMEOUT_MAX (365.0 * 86400)

#define BESIDE "/../libexec/pyresolve/" /* where the helper lies, from here */

enum {
    EXIT_NO_ANSWER = 1, /* nobody who looks at no more than this may read OK */
    EXIT_USAGE = 2,
    GRACE_MS = 100, /* for the supervisor to end what it has started */
};

static const char USAGE[] =
    "usage: pyresolve-probe check [--mode dlopen|preload] [--timeout SECONDS] LIB...\n"
    "       pyresolve-probe --help | --version\n";

static const char HELP[] =
    "\n"
    "Try each library in a process of its own and print one line about all of them.\n"
    "\n"
    "  LIB                  a path, or a name for the loader to search\n"
    "  --mode dlopen        opened by a running process, without the LD_PRELOAD here (default)\n"
    "  --mode preload       put first into LD_PRELOAD of a fresh process\n"
    "  --timeout SECONDS    for all of them together (default " TIMEOUT_DEFAULT ")\n"
    "\n"
    "exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN (no driver on this host)\n";

struct options {
    enum pyr_mode mode;
    double timeout;
    char **libraries; /* as they were given */
    char **paths;     /* as the loader is given them */
    uint32_t count;
    const char *helper;
    const char *stub;
};

/* What supervisor and watcher share. */
struct progress {
    uint32_t next;     /* the library that is being tried */
    uint32_t given_up; /* no answer can be had */
    struct pyr_tally tally;
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* --- arguments */

__attribute__((format(printf, 1, 2))) _Noreturn static void refuse(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs(USAGE, stderr);
    fputs("pyresolve-probe: ", stderr);
    vfprintf(stderr, format, values);
    fputs("\n", stderr);
    va_end(values);
    exit(EXIT_USAGE);
}

static enum pyr_mode mode_of(const char *text) {
    if (strcmp(text, "dlopen") == 0) {
        return PYR_DLOPEN;
    }
    if (strcmp(text, "preload") == 0) {
        return PYR_PRELOAD;
    }
    refuse("mode is '%s': give dlopen or preload", text);
}

static double timeout_of(const char *text) {
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds > 0 && seconds <= TIMEOUT_MAX)) {
        refuse("timeout is '%s': give a positive number of seconds", text);
    }
    return seconds;
}

static struct options options_of(int argc, char **argv) {
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'},
        {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.timeout = timeout_of(TIMEOUT_DEFAULT)};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", known, NULL)) >= 0;) {
        switch (option) {
        case 'm':
            options.mode = mode_of(optarg);
            break;
        case 't':
            options.timeout = timeout_of(optarg);
            break;
        case 'h':
            fputs(USAGE, stdout);
            fputs(HELP, stdout);
            exit(EXIT_SUCCESS);
        case 'v':
            puts("pyresolve-probe " PYR_VERSION);
            exit(EXIT_SUCCESS);
        case ':':
            refuse("%s needs a value", argv[optind - 1]);
        default:
            refuse("there is no option %s", argv[optind - 1]);
        }
    }
    if (optind == argc || strcmp(argv[optind], "check") != 0) {
        refuse("the command is check");
    }
    options.libraries = argv + optind + 1;
    options.count = (uint32_t)(argc - optind - 1);
    if (options.count == 0) {
        refuse("name at least one library");
    }
    return options;
}

/* --- paths */

_Noreturn static void give_up(const char *what) {
    fprintf(stderr, "pyresolve-probe: no check is possible: %s: %s\n", what, strerror(errno));
    exit(EXIT_NO_ANSWER);
}

static char *joined(const char *directory, const char *between, const char *name) {
    char *path = malloc(strlen(directory) + strlen(between) + strlen(name) + 1);
    if (!path) {
        give_up("malloc");
    }
    stpcpy(stpcpy(stpcpy(path, directory), between), name);
    return path;
}

/* A path is absolute for the loader, which reads LD_PRELOAD wherever the process may be. Not
 * normalized: `link/..` is not where it seems to be. */
static char **absolute(char **libraries, uint32_t count) {
    char directory[PATH_MAX] = "";
    char **paths = calloc(count, sizeof *paths);
    if (!paths) {
        give_up("calloc");
    }
    for (uint32_t i = 0; i < count; i++) {
        paths[i] = libraries[i];
        if (libraries[i][0] == '/' || !strchr(libraries[i], '/')) {
            continue;
        }
        if (directory[0] == '\0' && !getcwd(directory, sizeof directory)) {
            give_up("the current directory");
        }
        paths[i] = joined(directory, strcmp(directory, "/") ? "/" : "", libraries[i]);
    }
    return paths;
}

/* The directory of this very file: a link to it may lie anywhere. */
static const char *own_directory(void) {
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) {
        give_up("/proc/self/exe");
    }
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash) {
        *slash = '\0';
    }
    return path;
}

/* --- the supervisor */

_Noreturn static void supervise(const struct options *options, struct progress *progress,
                                int64_t left_ns) {
    struct pyr_tester tester = {
        .mode = options->mode,
        .timeout = options->timeout,
        .helper = options->helper,
        .stub = options->stub,
        .environment = environ,
    };
    progress->given_up = !pyr_tester_begin(&tester, left_ns);
    while (!progress->given_up && progress->next < options->count) {
        struct pyr_outcome outcome = {.name = options->libraries[progress->next]};
        if (pyr_tester_check(&tester, options->paths[progress->next], &outcome)) {
            pyr_tally_add(&progress->tally, &outcome);
            progress->next++;
        } else {
            progress->given_up = true;
        }
    }
    exit(EXIT_SUCCESS);
}

/* In a group of its own, away from the terminal's Ctrl-C: it is told to end, and ends its own. */
static pid_t supervisor_fork(void) {
    pid_t watcher = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != watcher) {
            _exit(EXIT_FAILURE);
        }
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
    }
    return pid;
}

/* --- the watcher */

static sigset_t awaited_signals(void) {
    const int awaited[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++) {
        sigaddset(&signals, awaited[i]);
    }
    return signals;
}

/* Ends as the signal would have ended this process at once, which as PID 1 it would not. */
_Noreturn static void die_of(int number) {
    sigset_t all = awaited_signals();
    raise(number);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    _exit(128 + number);
}

/* Waits for the supervisor's end; it holds the deadline by itself. One that is late is killed, and
 * so is all that is its child; its end is not waited for, since an uninterruptible sleep may be in
 * its way. Returns false then. */
static bool watch(pid_t supervisor, int64_t deadline) {
    sigset_t signals = awaited_signals();
    int told = 0;
    int64_t limit = deadline + GRACE_MS * NS_PER_MS;
    for (;;) {
        bool ended = waitpid(supervisor, NULL, WNOHANG) != 0;
        int64_t left = limit - now_ns();
        if (!ended && left <= 0) {
            kill(supervisor, SIGKILL);
        }
        if (told && (ended || left <= 0)) {
            die_of(told);
        }
        if (ended || left <= 0) {
            return ended;
        }
        struct timespec timeout = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
        int number = sigtimedwait(&signals, NULL, &timeout);
        if (number > 0 && number != SIGCHLD) {
            told = number;
            kill(supervisor, SIGTERM);
            limit = now_ns() + GRACE_MS * NS_PER_MS;
        }
    }
}

/* A library may end its supervisor: the next one goes on behind it. */
static void check_all(const struct options *options, struct progress *progress) {
    int64_t deadline = now_ns() + (int64_t)(options->timeout * (double)NS_PER_S);
    bool in_time = true;
    while (progress->next < options->count && !progress->given_up) {
        if (in_time) {
            pid_t supervisor = supervisor_fork();
            if (supervisor < 0) {
                give_up("fork");
            }
            if (supervisor == 0) {
                supervise(options, progress, deadline - now_ns());
            }
            in_time = watch(supervisor, deadline);
        }
        if (progress->next < options->count && !progress->given_up) {
            struct pyr_outcome outcome = {.name = options->libraries[progress->next++]};
            pyr_judge_lost(in_time, options->timeout, &outcome);
            pyr_tally_add(&progress->tally, &outcome);
        }
    }
}

/* Whatever this process was started with must change neither what it does nor what a library sees.
 * Descriptors of its own must not take the place of the standard ones. */
static void begin(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
    for (int number = 1; number < NSIG; number++) {
        signal(number, SIG_DFL);
    }
    sigset_t signals = awaited_signals();
    sigprocmask(SIG_SETMASK, &signals, NULL);
}

/* The exit status is the answer, whether or not anybody takes the line. */
static void say(const struct pyr_tally *tally) {
    char line[PYR_BRIEF_WIDTH + 2];
    pyr_brief_line(tally, line);
    size_t length = strlen(line);
    line[length++] = '\n';
    signal(SIGPIPE, SIG_IGN);
    if (write(STDOUT_FILENO, line, length) < 0) {
        fprintf(stderr, "pyresolve-probe: the line cannot be written: %s\n", strerror(errno));
    }
}

int main(int argc, char **argv) {
    begin();
    struct options options = options_of(argc, argv);
    options.paths = absolute(options.libraries, options.count);
    const char *directory = own_directory();
    options.helper = joined(directory, BESIDE, "pyresolve-helper");
    options.stub = joined(directory, BESIDE, "pyresolve-stub-driver.so");
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED) {
        give_up("mmap");
    }
    check_all(&options, progress);
    if (progress->given_up) {
        return EXIT_NO_ANSWER;
    }
    say(&progress->tally);
    return (int)pyr_status_verdict(progress->tally.worst.status);
}
