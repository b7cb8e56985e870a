/*
 * Makes calls on files fail: preloaded into a server, told what to do by a file that may change while it runs.
 *
 * $PETREL_FAULTS names that file; without it every call works. Its lines: CALL PART ERRNO, where CALL is one of sync, write,
 * read, open, and PART is a part of the path; the call fails with ERRNO on every file whose path has that part.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static __thread int looking;

/* The error that a call on a path is to end with; 0 for none. */
static int fault_of_path(const char *call, const char *path)
{
    const char *rules = getenv("PETREL_FAULTS");
    char line[512], named[16], part[256];
    int error, found = 0;
    if (!rules || looking)
        return 0;
    looking = 1;
    FILE *file = fopen(rules, "re");
    while (file && !found && fgets(line, sizeof line, file))
        if (sscanf(line, "%15s %255s %d", named, part, &error) == 3 && !strcmp(named, call) && strstr(path, part))
            found = error;
    if (file)
        fclose(file);
    looking = 0;
    return found;
}

static int fault(const char *call, int fd)
{
    char link[64], path[4096];
    if (looking)
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    int error = 0;
    if (len > 0) {
        path[len] = 0;
        error = fault_of_path(call, path);
    }
    errno = error ? error : before;
    return error;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fdatasync(int fd)
{
    return fault("sync", fd) ? -1 : REAL(fdatasync)(fd);
}

int fsync(int fd)
{
    return fault("sync", fd) ? -1 : REAL(fsync)(fd);
}

int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags)
{
    return fault("sync", fd) ? -1 : REAL(sync_file_range)(fd, at, len, flags);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
    return fault("write", fd) ? -1 : REAL(pwrite64)(fd, bytes, len, at);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    return fault("write", fd) ? -1 : REAL(write)(fd, bytes, len);
}

int ftruncate64(int fd, off64_t len)
{
    return fault("write", fd) ? -1 : REAL(ftruncate64)(fd, len);
}

ssize_t pread64(int fd, void *bytes, size_t len, off64_t at)
{
    return fault("read", fd) ? -1 : REAL(pread64)(fd, bytes, len, at);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int error = fault_of_path("open", path);
    if (error) {
        errno = error;
        return -1;
    }
    return REAL(open64)(path, flags, mode);
}
