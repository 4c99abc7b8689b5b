/* pyresolve-probe: is a library fit to be loaded? One line and an exit status, for probes that
 * cannot afford to start an interpreter.
 *
 * This program only supervises: the library is loaded by the helper, which is dynamic. It is static
 * itself, so that an environment in which no dynamic program starts is something to report. A
 * library that kills its parent ends it without a line; the exit status is then not that of an OK.
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trial.h"

/* Below 1 s, which is the default of a Kubernetes probe, by what ending takes at worst. */
#define TIMEOUT_DEFAULT 0.8
#define TIMEOUT_MAX (365.0 * 86400)

#define BESIDE "/../libexec/pyresolve/" /* where the helper lies, from here */

enum {
    EXIT_NO_ANSWER = 1, /* nobody who looks at no more than this may read OK */
    EXIT_USAGE = 2,
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
    "  --timeout SECONDS    for all of them together (default 0.8)\n"
    "\n"
    "exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN (no driver on this host)\n";

struct options {
    enum pyr_mode mode;
    double timeout;
    char **libraries;
    uint32_t count;
};

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

/* getopt tells a letter by itself, and of a word only where it stands. */
_Noreturn static void unknown_option(const char *word) {
    if (optopt != 0 && strncmp(word, "--", 2) != 0) {
        refuse("there is no option -%c", optopt);
    }
    refuse("there is no option %s", word);
}

static struct options options_of(int argc, char **argv) {
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'},
        {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.timeout = TIMEOUT_DEFAULT};
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

/* --- this process */

/* Whatever it was started with must change neither what it does nor what a library sees. Its own
 * descriptors must not take the place of the standard ones. Returns one of /dev/null. */
static int begin(void) {
    int null;
    do {
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (null >= 0 && null <= STDERR_FILENO);
    for (int number = 1; number <= SIGSYS; number++) { /* real-time signals nobody ignores */
        signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return null;
}

/* A supervisor kills all that is its child. One that was another program before may have children,
 * and PID 1 is given those of others: there a fresh process does the work. */
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

static bool check_all(const struct options *options, int null, struct pyr_tally *tally) {
    const char *directory = own_directory();
    struct pyr_tester tester = {
        .mode = options->mode,
        .timeout = options->timeout,
        .helper = joined(directory, BESIDE, "pyresolve-helper"),
        .stub = joined(directory, BESIDE, "pyresolve-stub-driver.so"),
        .environment = environ,
        .null = null,
    };
    char **paths = absolute(options->libraries, options->count);
    bool answered = pyr_tester_begin(&tester);
    for (uint32_t i = 0; answered && i < options->count; i++) {
        struct pyr_outcome outcome = {.name = options->libraries[i]};
        answered = pyr_tester_check(&tester, paths[i], &outcome);
        if (answered) {
            pyr_tally_add(tally, &outcome);
        }
    }
    if (tester.supervisor.told) {
        die_of(tester.supervisor.told);
    }
    return answered;
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
    int null = begin();
    struct options options = options_of(argc, argv);
    if (null < 0) {
        give_up("/dev/null");
    }
    make_fresh();
    struct pyr_tally tally = {.checks = 0};
    if (!check_all(&options, null, &tally)) {
        return EXIT_NO_ANSWER;
    }
    say(&tally);
    return (int)pyr_status_verdict(tally.worst.status);
}
