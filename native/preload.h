/* Environments in which a hook is preloaded first. The rules are glibc's, see ld.so(8): neither
 * LD_PRELOAD nor LD_LIBRARY_PATH has any escaping. */
#ifndef PYR_PRELOAD_H
#define PYR_PRELOAD_H

#include <stdbool.h>

/* Environments as execve takes them, or NULL if memory is short. They are never freed: a process
 * makes a few of them and ends. */

/* `environment` with `entry`, which is NAME=VALUE and must outlive it. */
char **pyr_environment_with(char **environment, char *entry);

/* `environment` in which `hook` is preloaded first, unless it is in there already. *variable is
 * NULL, or names the one that cannot hold the path; the result is then NULL. */
char **pyr_preload_first(char **environment, const char *hook, const char **variable);

/* The same with `item` preloaded after all others. */
char **pyr_preload_last(char **environment, const char *item);

/* The same in which neither `hook` nor anything of its file name is preloaded. */
char **pyr_preload_without(char **environment, const char *hook);

/* The same without LD_PRELOAD. */
char **pyr_preload_none(char **environment);

#endif
