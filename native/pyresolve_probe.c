/* pyresolve-probe: does a library load? One line and an exit status, for probes that cannot afford
 * to start an interpreter.
 *
 * This program only supervises: the helper, which is dynamic, loads the library. This program is
 * static, so that it can report an environment in which no dynamic program starts. It is two
 * processes: the one that checks, and the one that was started, which holds the deadline and has
 * the last word if a library kills, stops or traces its parent.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "line.h"
#include "preload.h"
#include "trial.h"

/* A Kubernetes probe waits 1 s by default; to end takes LATE_MS and 0.15 s at most. */
#define TIMEOUT_DEFAULT 0.8
#define TIMEOUT_MAX (365.0 * 86400)

#define BESIDE "/../libexec/pyresolve/" /* where the helper lies, from here */
#define HELPER "pyresolve-helper"

enum {
    LATE_MS = 20,   /* how much later than its deadline the process that checks may answer */
    LINKS_MAX = 40, /* as many as the kernel follows */
};

enum {
    EXIT_NO_ANSWER = 1, /* must be nonzero: callers may check only the status */
    EXIT_USAGE = 2,
};

static const char USAGE[] = "usage: pyresolve-probe check [--mode dlopen|preload] [--after LIB]... "
                            "[--timeout SECONDS] LIB...\n"
                            "       pyresolve-probe --help | --version\n";

static const char HELP[] =
    "\n"
    "Try each library in a process of its own and print one line about all of them.\n"
    "\n"
    "  LIB                  a path, or a name for the loader to search\n"
    "  --mode dlopen        opened by a running process, without the LD_PRELOAD here (default)\n"
    "  --mode preload       put first into LD_PRELOAD of a fresh process\n"
    "  --after LIB          opened before, as a program does; only with --mode dlopen\n"
    "  --timeout SECONDS    for all of them together (default 0.8)\n"
    "\n"
    "exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN (no driver is found here, or a Python\n"
    "extension: pyresolve check takes one together with an interpreter)\n";

struct options {
    enum pyr_mode mode;
    double timeout;
    char **before; /* ended by NULL */
    char **libraries;
    uint32_t count;
};

/* --- arguments */

_Noreturn static void give_up(const char *what) {
    fprintf(stderr, "pyresolve-probe: no check is possible: %s: %s\n", what, strerror(errno));
    exit(EXIT_NO_ANSWER);
}

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

/* getopt reports a letter by itself, and a word only by its position. */
_Noreturn static void unknown_option(const char *word) {
    if (optopt != 0 && strncmp(word, "--", 2) != 0) {
        refuse("there is no option -%c", optopt);
    }
    refuse("there is no option %s", word);
}

static struct options options_of(int argc, char **argv) {
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'},    {"after", required_argument, NULL, 'a'},
        {"timeout", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},       {NULL, 0, NULL, 0},
    };
    struct options options = {
        .timeout = TIMEOUT_DEFAULT,
        .before = calloc((size_t)argc, sizeof *options.before),
    };
    if (!options.before) {
        give_up("calloc");
    }
    size_t count = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", known, NULL)) >= 0;) {
        switch (option) {
        case 'm':
            options.mode = mode_of(optarg);
            break;
        case 'a':
            options.before[count++] = optarg;
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
            unknown_option(argv[optind - 1]);
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
    for (uint32_t i = 0; i < options.count; i++) {
        if (options.libraries[i][0] == '\0') {
            refuse("a path is empty: name a library");
        }
    }
    if (count > 0 && options.mode == PYR_PRELOAD) {
        refuse("nothing is opened before a preload: give --after with --mode dlopen");
    }
    return options;
}

/* --- paths */

static char *joined(const char *directory, const char *between, const char *name) {
    char *path = malloc(strlen(directory) + strlen(between) + strlen(name) + 1);
    if (!path) {
        give_up("malloc");
    }
    stpcpy(stpcpy(stpcpy(path, directory), between), name);
    return path;
}

/* Paths are made absolute, since LD_PRELOAD is read in whatever directory a process starts. They
 * are not normalized: `link/..` depends on where the link leads. */
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
            if (errno == ENOENT) { /* it was deleted, and nothing is found from there */
                continue;
            }
            give_up("the current directory");
        }
        paths[i] = joined(directory, strcmp(directory, "/") ? "/" : "", libraries[i]);
    }
    return paths;
}

static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (!directory) {
        give_up("malloc");
    }
    return directory;
}

/* What the link at `path` leads to; NULL if that is no link. */
static char *link_target(const char *path, const char *directory) {
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) {
        return NULL;
    }
    target[length] = '\0';
    return target[0] == '/' ? joined(target, "", "") : joined(directory, "/", target);
}

/* The directory of this program, beside which its helper lies: that of the path it was started by,
 * of what the links from there lead to, or of its own file. An installer may have put a link into
 * its cache there (uv), a hard link or a copy, and anybody a link to that. */
static const char *own_directory(void) {
    const char *path = (const char *)getauxval(AT_EXECFN);
    for (int links = 0; path && links < LINKS_MAX; links++) {
        const char *directory = directory_of(path);
        if (access(joined(directory, BESIDE, HELPER), F_OK) == 0) {
            return directory;
        }
        path = link_target(path, directory);
    }
    path = link_target("/proc/self/exe", "");
    if (!path) {
        give_up("/proc/self/exe");
    }
    return directory_of(path);
}

/* --- this process */

/* Resets what this process inherited and what would change what a library sees: its signals and
 * its standard input. Closed standard streams are opened, so that no descriptor of this program
 * takes their place. */
static bool begin(int *error) {
    int null;
    do {
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        *error = errno;
    } while (null >= 0 && null <= STDERR_FILENO);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        close(null);
    }
    for (int number = 1; number <= SIGSYS; number++) { /* no program ignores real-time signals */
        signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return null >= 0;
}

/* A supervisor kills all its children. A process that was another program before may have some, and
 * PID 1 inherits those of others: there a fresh process does the work. */
static void make_fresh(void) {
    siginfo_t info;
    bool childless = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0;
    if (childless && getpid() != 1) {
        return;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        give_up("fork");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) {
            _exit(EXIT_NO_ANSWER);
        }
        return;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Ends as the signal would have ended it at once. */
_Noreturn static void die_of(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    _exit(128 + number);
}

/* Is it the helper that is missing or damaged, and no limit or policy? */
static bool is_missing(int error) {
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC;
}

/* Says on stderr what failed. */
static bool cannot_check(const struct pyr_tester *tester) {
    const char *call = tester->failed_call, *error = strerror(tester->sys_errno);
    fputs("pyresolve-probe: no check is possible: ", stderr);
    if (strcmp(call, PYR_CALL_RECORDS) == 0 && tester->sys_errno == ENOENT) {
        fputs("a library's process could not reach this one through /proc: mount it\n", stderr);
    } else if (strcmp(call, "execve") == 0 && is_missing(tester->sys_errno)) {
        fprintf(stderr,
                "%s: %s\n"
                "pyresolve-probe: reinstall pyresolve-native; to have this program elsewhere link"
                " to it\n",
                tester->helper, error);
    } else {
        fprintf(stderr, "%s: %s\n", call, error);
    }
    return false;
}

static bool rehearse(struct pyr_tester *tester, const char *path, struct pyr_outcome *outcome) {
    const char *variable;
    char **environment = pyr_preload_first(environ, path, &variable);
    if (variable) {
        fprintf(stderr,
                "pyresolve-probe: %s cannot be preloaded: its path holds what %s does not take"
                " literally; move the environment to a path without it\n",
                path, variable);
        return false;
    }
    if (!environment) {
        give_up("malloc");
    }
    struct pyr_child child;
    if (!pyr_rehearsal_start(tester, path, environment, &child)) {
        return cannot_check(tester);
    }
    pyr_supervisor_wait(tester->supervisor, &child, 1);
    return pyr_rehearsal_finish(tester, path, environment, &child, outcome) || cannot_check(tester);
}

static bool check_one(const struct options *options, struct pyr_tester *tester, const char *path,
                      struct pyr_outcome *outcome) {
    if (pyr_classify_file(path, outcome)) {
        return true;
    }
    if (tester->supervisor->deadline <= now_ns()) {
        pyr_classify_late(outcome);
        return true;
    }
    if (options->mode == PYR_PRELOAD) {
        return rehearse(tester, path, outcome);
    }
    return pyr_tester_load(tester, path, environ, outcome) || cannot_check(tester);
}

/* What the process that checks leaves to the other one. The tried processes do not map it, since
 * each is exec'd. */
struct answers {
    uint32_t done; /* how many outcomes there are */
    struct pyr_outcome outcomes[];
};

/* Only what was touched takes memory. */
static struct answers *answers_map(uint32_t count) {
    size_t size = sizeof(struct answers) + count * sizeof(struct pyr_outcome);
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        give_up("mmap");
    }
    return memory;
}

/* Checks what is not checked yet, in a process of its own. */
_Noreturn static void check_rest(const struct options *options, char **paths, int64_t timeout_ns,
                                 pid_t caller, struct answers *answers) {
    const char *directory = own_directory();
    struct pyr_supervisor supervisor;
    struct pyr_tester tester = {
        .supervisor = &supervisor,
        .helper = joined(directory, BESIDE, HELPER),
        .stub = joined(directory, BESIDE, "pyresolve-stub-driver.so"),
        .next = "",
        .before = options->before,
    };
    pyr_supervisor_begin(&supervisor, timeout_ns, caller);
    bool answered = pyr_tester_open(&tester) || cannot_check(&tester);
    while (answered && answers->done < options->count && !supervisor.stop_signal) {
        uint32_t next = answers->done;
        answered = check_one(options, &tester, paths[next], &answers->outcomes[next]);
        answers->done += answered && !supervisor.stop_signal;
    }
    _exit(answered ? EXIT_SUCCESS : EXIT_NO_ANSWER);
}

/* The detail lives as long as this process. */
static struct pyr_line_check line_check(const struct options *options, const char *library,
                                        const struct pyr_outcome *outcome) {
    static char detail[PYR_WIRE_TEXT_MAX];
    if (outcome->status == PYR_TIMED_OUT) {
        snprintf(detail, sizeof detail, "%g s", options->timeout);
    } else {
        pyr_outcome_detail(outcome, detail);
    }
    return (struct pyr_line_check){
        .verdict = (int32_t)pyr_status_verdict(outcome->status),
        .status = pyr_status_name(outcome->status),
        .detail = strdup(detail),
        .name = library,
    };
}

/* A library that ends the process that checks costs the others nothing; one that stops it takes the
 * time of those after it, as one that hangs. */
static bool check_all(const struct options *options, struct answers *answers) {
    pid_t self = getpid();
    char **paths = absolute(options->libraries, options->count);
    struct pyr_supervisor guard;
    pyr_supervisor_begin(&guard,
                         (int64_t)(options->timeout * (double)NS_PER_S) + LATE_MS * NS_PER_MS, 0);
    while (answers->done < options->count) {
        int64_t left = guard.deadline - LATE_MS * NS_PER_MS - now_ns();
        struct pyr_child child = {.pid = pyr_supervisor_fork(&guard)};
        if (child.pid < 0) {
            give_up("fork");
        }
        if (child.pid == 0) {
            check_rest(options, paths, left, self, answers);
        }
        pyr_supervisor_wait(&guard, &child, 1);
        if (guard.stop_signal) {
            die_of(guard.stop_signal);
        }
        if (child.end == PYR_CHILD_ENDED && WIFEXITED(child.status) &&
            WEXITSTATUS(child.status) == EXIT_NO_ANSWER) {
            return false;
        }
        while (answers->done < options->count && child.end != PYR_CHILD_ENDED) {
            pyr_classify_late(&answers->outcomes[answers->done++]);
        }
        if (answers->done < options->count) {
            pyr_classify_hostile(&answers->outcomes[answers->done++]);
        }
    }
    return true;
}

/* The exit status is the answer, whether or not anybody takes the line. */
static void print_line(const struct pyr_line_check *checks, uint32_t count) {
    char line[PYR_LINE_WIDTH + 2];
    pyr_line_write(checks, count, line);
    size_t length = strlen(line);
    line[length++] = '\n';
    signal(SIGPIPE, SIG_IGN);
    if (write(STDOUT_FILENO, line, length) < 0) {
        fprintf(stderr, "pyresolve-probe: the line cannot be written: %s\n", strerror(errno));
    }
}

int main(int argc, char **argv) {
    int error;
    bool ready = begin(&error);
    struct options options = options_of(argc, argv);
    if (!ready) {
        errno = error;
        give_up("/dev/null");
    }
    make_fresh();
    struct answers *answers = answers_map(options.count);
    struct pyr_line_check *checks = calloc(options.count, sizeof *checks);
    if (!checks) {
        give_up("calloc");
    }
    if (!check_all(&options, answers)) {
        return EXIT_NO_ANSWER;
    }
    for (uint32_t i = 0; i < options.count; i++) {
        checks[i] = line_check(&options, options.libraries[i], &answers->outcomes[i]);
        if (!checks[i].detail) {
            give_up("strdup");
        }
    }
    print_line(checks, options.count);
    return pyr_line_verdict(checks, options.count);
}
