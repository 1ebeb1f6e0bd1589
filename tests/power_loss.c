/* A library for LD_PRELOAD that writes down what a power cut would leave of the folder SHIM_ROOT.
 *
 * Before and after each call that makes something last or changes a name (fsync, rename, unlink, rmdir), SHIM_STORE gets
 * a line in `events`: what happened, and to which inode; a listing of the whole tree; and for each synced file a
 * copy of what is in it. tests/test_power_loss.py puts the pictures together. With SHIM_DEAF no sync is heard.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static const char *root(void) { return getenv("SHIM_ROOT"); }

static int inside(const char *path) {
    const char *top = root();
    return top && strncmp(path, top, strlen(top)) == 0;
}

/* The full name of a path that may be relative to a folder handle or to the current folder. */
static void full(int folder, const char *path, char *out) {
    char base[PATH_MAX] = "", link[64];
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) base[0] = 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        base[n > 0 ? n : 0] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) out[0] = 0;
}

static void list(FILE *to, const char *folder) {
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    if (!open_folder) return;
    while ((entry = readdir(open_folder))) {
        char path[PATH_MAX];
        struct stat found;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) continue;
        if (lstat(path, &found)) continue;
        fprintf(to, "%s\t%lu\t%s\n", S_ISDIR(found.st_mode) ? "folder" : "file", found.st_ino, path);
        if (S_ISDIR(found.st_mode)) list(to, path);
    }
    closedir(open_folder);
}

static void copy(int from, const char *to) {
    char buffer[65536];
    int out = syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t place = 0;
    ssize_t n;
    while ((n = pread(from, buffer, sizeof buffer, place)) > 0) {
        if (write(out, buffer, n) != n) abort();
        place += n;
    }
    close(out);
}

/* One event: its number is that of its line. `handle` is that of a file whose content is to be kept, or -1. */
static void note(const char *what, unsigned long inode, int handle) {
    static unsigned long number;
    char path[PATH_MAX];
    const char *store = getenv("SHIM_STORE");
    pthread_mutex_lock(&turn);
    snprintf(path, sizeof path, "%s/%lu.tree", store, number);
    FILE *tree = fopen(path, "w");
    if (!tree) abort();
    list(tree, root());
    fclose(tree);
    if (handle >= 0) {
        snprintf(path, sizeof path, "%s/%lu.content", store, number);
        copy(handle, path);
    }
    snprintf(path, sizeof path, "%s/events", store);
    FILE *events = fopen(path, "a");
    if (!events) abort();
    fprintf(events, "%s %lu\n", what, inode);
    fclose(events);
    number++;
    pthread_mutex_unlock(&turn);
}

static unsigned long inode_of(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

static int synced(int handle, int result) {
    char link[64], path[PATH_MAX];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (result == 0 && n > 0 && !getenv("SHIM_DEAF")) {
        path[n] = 0;
        if (inside(path) && !fstat(handle, &found)) {
            int folder = S_ISDIR(found.st_mode);
            note(folder ? "sync-folder" : "sync-file", found.st_ino, folder ? -1 : handle);
        }
    }
    return result;
}

int fsync(int handle) { return synced(handle, syscall(SYS_fsync, handle)); }
int fdatasync(int handle) { return synced(handle, syscall(SYS_fdatasync, handle)); }

static int renamed(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char source[PATH_MAX], target[PATH_MAX];
    full(from_folder, from, source);
    full(to_folder, to, target);
    int ours = inside(source) || inside(target);
    unsigned long lost = ours && !(flags & RENAME_EXCHANGE) ? inode_of(target) : 0;
    if (ours) note("before-rename", 0, -1);
    int result = syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (ours && result == 0) note("rename", lost, -1);
    return result;
}

int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return renamed(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return renamed(a, from, b, to, flags); }

static int removed(int folder, const char *path, int flags) {
    char target[PATH_MAX];
    full(folder, path, target);
    unsigned long lost = inside(target) ? inode_of(target) : 0;
    int result = syscall(SYS_unlinkat, folder, path, flags);
    if (lost && result == 0) note("remove", lost, -1);
    return result;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char *path, int flags) { return removed(folder, path, flags); }
