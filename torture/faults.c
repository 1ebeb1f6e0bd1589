/* The n-th call of a kind on a file below a folder fails: TORTURE_FAULT=CALL:NUMBER:ERRNO[:stays], TORTURE_UNDER=FOLDER.
   TORTURE_COUNTS names a file in which all processes count their calls together, as numbers of 8 bytes in the order of
   `names`; without TORTURE_FAULT, that is all that happens. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, RENAME, MKDIR, MMAP, READ, KINDS };
static const char *const names[KINDS] = {"open", "write", "fsync", "rename", "mkdir", "mmap", "read"};
static long own[KINDS], *counts = own;
static long number;
static int kind = -1, error, stays, ready;
static char under[PATH_MAX];

static void prepare(void) {
    if (ready) return;
    ready = 1;
    const char *folder = getenv("TORTURE_UNDER"), *fault = getenv("TORTURE_FAULT"), *path = getenv("TORTURE_COUNTS");
    if (path) {
        long file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, 0644);
        syscall(SYS_ftruncate, file, sizeof own);
        void *shared = (void *)syscall(SYS_mmap, 0, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) counts = shared;
        syscall(SYS_close, file);
    }
    if (folder) snprintf(under, sizeof under, "%s", folder);
    char call[32], rest[32] = "";
    if (!fault || sscanf(fault, "%31[a-z]:%ld:%d:%31s", call, &number, &error, rest) < 3) return;
    stays = !strcmp(rest, "stays");
    for (int one = 0; one < KINDS; one++)
        if (!strcmp(call, names[one])) kind = one;
}

static int below(const char *path) { return *under && !strncmp(path, under, strlen(under)); }

static int at_path(int folder, const char *path) {
    char whole[2 * PATH_MAX], base[PATH_MAX] = "", link[64];
    if (!path) return 0;
    if (*path == '/') return below(path);
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        if (readlink(link, base, sizeof base - 1) < 0) return 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return below(whole);
}

static int at_file(int file) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && below(path) && !strstr(path, "/log.");
}

/* Whether this call is the one that fails. */
static int fails(int one, int concerned) {
    if (!concerned) return 0;
    long count = __sync_add_and_fetch(&counts[one], 1);
    if (one != kind || !(count == number || (stays && count > number))) return 0;
    errno = error;
    return 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); prepare()
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { REAL(open); MODE; return fails(OPEN, at_path(AT_FDCWD, path)) ? -1 : real(path, flags, mode); }
int open64(const char *path, int flags, ...) { REAL(open64); MODE; return fails(OPEN, at_path(AT_FDCWD, path)) ? -1 : real(path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { REAL(openat); MODE; return fails(OPEN, at_path(folder, path)) ? -1 : real(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { REAL(openat64); MODE; return fails(OPEN, at_path(folder, path)) ? -1 : real(folder, path, flags, mode); }
FILE *fopen(const char *path, const char *mode) { REAL(fopen); return fails(OPEN, at_path(AT_FDCWD, path)) ? NULL : real(path, mode); }
FILE *fopen64(const char *path, const char *mode) { REAL(fopen64); return fails(OPEN, at_path(AT_FDCWD, path)) ? NULL : real(path, mode); }
ssize_t write(int file, const void *data, size_t size) { REAL(write); return fails(WRITE, at_file(file)) ? -1 : real(file, data, size); }
ssize_t pwrite(int file, const void *data, size_t size, off_t place) { REAL(pwrite); return fails(WRITE, at_file(file)) ? -1 : real(file, data, size, place); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) { REAL(pwrite64); return fails(WRITE, at_file(file)) ? -1 : real(file, data, size, place); }
ssize_t writev(int file, const struct iovec *parts, int n) { REAL(writev); return fails(WRITE, at_file(file)) ? -1 : real(file, parts, n); }
int ftruncate(int file, off_t size) { REAL(ftruncate); return fails(WRITE, at_file(file)) ? -1 : real(file, size); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); return fails(WRITE, at_file(file)) ? -1 : real(file, size); }
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags) { REAL(copy_file_range); return fails(WRITE, at_file(to)) ? -1 : real(from, a, to, b, size, flags); }
ssize_t sendfile(int to, int from, off_t *place, size_t size);
ssize_t sendfile(int to, int from, off_t *place, size_t size) { REAL(sendfile); return fails(WRITE, at_file(to)) ? -1 : real(to, from, place, size); }
int fsync(int file) { REAL(fsync); return fails(SYNC, at_file(file)) ? -1 : real(file); }
int fdatasync(int file) { REAL(fdatasync); return fails(SYNC, at_file(file)) ? -1 : real(file); }
int rename(const char *from, const char *to) { REAL(rename); return fails(RENAME, at_path(AT_FDCWD, to)) ? -1 : real(from, to); }
int renameat(int a, const char *from, int b, const char *to) { REAL(renameat); return fails(RENAME, at_path(b, to)) ? -1 : real(a, from, b, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { REAL(renameat2); return fails(RENAME, at_path(b, to)) ? -1 : real(a, from, b, to, flags); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return fails(MKDIR, at_path(AT_FDCWD, path)) ? -1 : real(path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { REAL(mkdirat); return fails(MKDIR, at_path(folder, path)) ? -1 : real(folder, path, mode); }
void *mmap(void *at, size_t size, int how, int flags, int file, off_t place) { REAL(mmap); return fails(MMAP, file >= 0 && at_file(file)) ? MAP_FAILED : real(at, size, how, flags, file, place); }
void *mmap64(void *at, size_t size, int how, int flags, int file, off64_t place) { REAL(mmap64); return fails(MMAP, file >= 0 && at_file(file)) ? MAP_FAILED : real(at, size, how, flags, file, place); }
ssize_t read(int file, void *data, size_t size) { REAL(read); return fails(READ, at_file(file)) ? -1 : real(file, data, size); }
ssize_t pread(int file, void *data, size_t size, off_t place) { REAL(pread); return fails(READ, at_file(file)) ? -1 : real(file, data, size, place); }
ssize_t pread64(int file, void *data, size_t size, off64_t place) { REAL(pread64); return fails(READ, at_file(file)) ? -1 : real(file, data, size, place); }
