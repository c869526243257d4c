/* workdir.c - the directory in which an output is made, and the proof that it is ours.
 *
 * The mark is a file whose first lines are fixed and end with the directory's own name, so that a
 * copy or a directory of another name is not taken for ours. Behind them stand the names of all
 * files that were ever made in checkpoint/, each ended by a zero byte and written before the file
 * is. The mark is the first thing in a directory and the last to go: a kill leaves an empty
 * directory, one with a mark that is cut short and nothing else, or one with its mark.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/out_internal.h"

#define WORK_ATTEMPTS 16
#define NAME_BYTES 256
#define HEADER_BYTES 512
#define HEADER "swage-work 1\nUnfinished work of swage, which removes it when it is done.\n%s\n"

typedef enum mark_state { MARK_NONE, MARK_OURS, MARK_CUT, MARK_OTHER } mark_state;

/* --- names --- */

/* The name without "`mark`DIGITS", which must end it; NAME_BYTES for `out`. */
static bool strip_numbered(char *out, const char *name, const char *mark)
{
    const char *at = strstr(name, mark), *next;
    size_t n_mark = strlen(mark), n_digits;

    while (at && (next = strstr(at + 1, mark))) at = next;
    if (!at || (size_t)(at - name) >= NAME_BYTES) return false;
    n_digits = strspn(at + n_mark, "0123456789");
    if (!n_digits || at[n_mark + n_digits]) return false;
    memcpy(out, name, (size_t)(at - name));
    out[at - name] = '\0';
    return true;
}

static bool strip_part(char *out, const char *name)
{
    size_t n = strlen(name), n_end = strlen(SW_OUT_PART);

    if (n <= n_end || n - n_end >= NAME_BYTES || strcmp(name + n - n_end, SW_OUT_PART) != 0)
        return false;
    memcpy(out, name, n - n_end);
    out[n - n_end] = '\0';
    return true;
}

/* --- the mark --- */

static size_t header_of(char out[HEADER_BYTES], const char *dir)
{
    int n = snprintf(out, HEADER_BYTES, HEADER, sw_path_base(dir));

    return n > 0 && n < HEADER_BYTES ? (size_t)n : 0;
}

static int open_mark(const char *dir, int flags)
{
    char path[SW_PATH_BYTES];
    int fd;

    if (sw_path_join(path, dir, SW_WORK_MARK, NULL) != SW_OK) {
        errno = ENAMETOOLONG;
        return -1;
    }
    do fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static mark_state judge_mark(int fd, const char *dir)
{
    char want[HEADER_BYTES], have[HEADER_BYTES];
    size_t n_want = header_of(want, dir);
    struct stat info;
    ssize_t n;

    if (!n_want || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return MARK_OTHER;
    n = pread(fd, have, n_want, 0);
    if (n < 0 || memcmp(have, want, (size_t)n) != 0) return MARK_OTHER;
    return (size_t)n == n_want ? MARK_OURS : MARK_CUT;
}

/* A mark that cannot be opened is an error: nobody knows whose the directory is. */
static sw_code read_mark(mark_state *out, const char *dir, sw_err *err)
{
    int fd = open_mark(dir, O_RDONLY);

    *out = MARK_NONE;
    if (fd >= 0) {
        *out = judge_mark(fd, dir);
        close(fd);
        return SW_OK;
    }
    if (errno == ENOENT) return SW_OK;
    *out = MARK_OTHER;
    if (errno == ELOOP) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s/" SW_WORK_MARK ": cannot be opened: %s", dir, strerror(errno));
}

static int fill_mark(int fd, const char *dir)
{
    char header[HEADER_BYTES];
    size_t n = header_of(header, dir), at = 0;

    if (!n) return ENAMETOOLONG;
    while (at < n) {
        ssize_t done = pwrite(fd, header + at, n - at, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        at += (size_t)done;
    }
    return sw_sync_fd(fd);
}

/* Durable before anything else is in the directory. */
static sw_code write_mark(const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join(path, dir, SW_WORK_MARK, err);
    int fd, failed;

    if (rc != SW_OK) return rc;
    (void)unlink(path); /* one that was cut short */
    if ((fd = open_mark(dir, O_WRONLY | O_CREAT | O_EXCL)) < 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", path, strerror(errno));
    failed = fill_mark(fd, dir);
    close(fd);
    if (!failed) failed = sw_sync_path(dir);
    if (!failed) return SW_OK;
    (void)unlink(path);
    return SW_FAIL(err, SW_E_IO, "%s: cannot write: %s", path, strerror(failed));
}

/* Is the name in the list behind the header? Read piece by piece: removal takes no memory. */
static bool lists(int fd, size_t header_bytes, const char *name)
{
    char piece[4096];
    size_t n_name = strlen(name) + 1, n_same = 0;
    bool is_same = true;
    off_t at = (off_t)header_bytes;
    ssize_t n;

    while ((n = pread(fd, piece, sizeof piece, at)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            is_same = is_same && n_same < n_name && name[n_same] == piece[i];
            n_same++;
            if (piece[i]) continue;
            if (is_same) return true;
            n_same = 0;
            is_same = true;
        }
        at += n;
    }
    return false;
}

/* A name of the list, or of the temporary of one. */
static bool is_noted(int fd, const char *dir, const char *name)
{
    char header[HEADER_BYTES], plain[NAME_BYTES];
    size_t n = header_of(header, dir);

    return lists(fd, n, name) || (strip_part(plain, name) && lists(fd, n, plain)) ||
           (strip_numbered(plain, name, SW_OUT_TEMP) && lists(fd, n, plain));
}

/* A name that a kill has cut short is ended here, so that it does not run into the next one. */
static sw_code append_name(int fd, const char *name, sw_err *err)
{
    char line[NAME_BYTES + 1] = "", last = '\0';
    size_t n = strlen(name) + 1;
    struct stat info;
    ssize_t done;

    if (n > NAME_BYTES) return SW_FAIL(err, SW_E_IO, "%s: name too long", name);
    if (fstat(fd, &info) != 0 || pread(fd, &last, 1, info.st_size - 1) != 1)
        return SW_FAIL(err, SW_E_IO, "%s: cannot read: %s", SW_WORK_MARK, strerror(errno));
    memcpy(line + (last != '\0' && last != '\n'), name, n);
    n += last != '\0' && last != '\n';
    do done = write(fd, line, n);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)n) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot write: %s", SW_WORK_MARK,
                   done < 0 ? strerror(errno) : "no progress");
}

static sw_code note(const char *dir, const char *name, sw_err *err)
{
    char header[HEADER_BYTES];
    sw_code rc = SW_OK;
    int fd = open_mark(dir, O_RDWR | O_APPEND);

    if (fd < 0 && errno == ENOENT) return SW_OK; /* no work directory */
    if (fd < 0)
        return SW_FAIL(err, SW_E_IO, "%s/" SW_WORK_MARK ": cannot be opened: %s", dir,
                       strerror(errno));
    if (judge_mark(fd, dir) == MARK_OURS && !lists(fd, header_of(header, dir), name))
        rc = append_name(fd, name, err);
    close(fd);
    if (rc != SW_OK) sw_err_prefix(err, "%s", dir);
    return rc;
}

sw_code sw_work_note(const char *path, sw_err *err)
{
    char tree[SW_PATH_BYTES], dir[SW_PATH_BYTES];

    sw_path_parent(tree, path);
    sw_path_strip(tree);
    if (strcmp(sw_path_base(tree), SW_WORK_TREE) != 0) return SW_OK;
    sw_path_parent(dir, tree);
    sw_path_strip(dir);
    return note(dir, sw_path_base(path), err);
}

sw_code sw_work_note_all(const char *dir, const char *path, sw_err *err)
{
    DIR *list = opendir(path);
    const struct dirent *entry;
    char mark[SW_PATH_BYTES];
    sw_code rc = SW_OK;
    int failed;

    if (!list) return SW_FAIL(err, SW_E_IO, "%s: cannot list: %s", path, strerror(errno));
    while (rc == SW_OK && (entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = note(dir, entry->d_name, err);
    closedir(list);
    if (rc != SW_OK || (rc = sw_path_join(mark, dir, SW_WORK_MARK, err)) != SW_OK) return rc;
    if ((failed = sw_sync_path(mark)) == 0) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot sync: %s", mark, strerror(failed));
}

/* --- what is in it --- */

/* Only plain files count: a link or a directory under one of our names is not ours. */
static bool is_kind(int dir_fd, const char *name, mode_t kind)
{
    struct stat info;

    return fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           (info.st_mode & S_IFMT) == kind;
}

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

static bool is_ours_above(int dir_fd, const char *name)
{
    char plain[NAME_BYTES];

    if (!strcmp(name, SW_WORK_TREE) || !strcmp(name, SW_WORK_OLD))
        return is_kind(dir_fd, name, S_IFDIR);
    if (!is_kind(dir_fd, name, S_IFREG)) return false;
    if (strip_numbered(plain, name, SW_OUT_TEMP)) return !strcmp(plain, SW_HOLD_JOURNAL);
    return !strcmp(name, SW_HOLD_JOURNAL) || !strcmp(name, SW_WORK_MARK) ||
           !strcmp(name, SW_WORK_FILE);
}

/* Calls for each entry that is ours (want) or not; stops when the function says so. Directories
 * are read again after a removal, since that may hide entries. */
typedef bool (*entry_fn)(void *ctx, int dir_fd, const char *name);

typedef struct look {
    const char *dir;
    int mark_fd; /* -1: entries of the work directory itself */
    bool wants_ours;
} look;

static bool walk(const char *path, const look *l, entry_fn fn, void *ctx)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    bool goes_on = true;

    if (fd >= 0 && !list) close(fd);
    while (list && goes_on && (entry = readdir(list))) {
        const char *name = entry->d_name;
        bool is_ours;
        if (is_dots(name)) continue;
        is_ours = l->mark_fd < 0 ? is_ours_above(fd, name)
                                 : is_kind(fd, name, S_IFREG) && is_noted(l->mark_fd, l->dir, name);
        if (is_ours == l->wants_ours) goes_on = fn(ctx, fd, name);
    }
    if (list) closedir(list);
    return goes_on;
}

static bool copy_name(void *ctx, int dir_fd, const char *name)
{
    (void)dir_fd;
    (void)snprintf(ctx, NAME_BYTES, "%s", name);
    return false;
}

static bool remove_file(void *ctx, int dir_fd, const char *name)
{
    bool is_gone = unlinkat(dir_fd, name, 0) == 0;

    *(bool *)ctx = *(bool *)ctx || is_gone;
    return true;
}

static const char *const trees[] = {SW_WORK_TREE, SW_WORK_OLD};

/* The first entry that is not ours, as a path below `dir`; false: there is none. */
static bool find_other(char out[2 * NAME_BYTES], const char *dir)
{
    char path[SW_PATH_BYTES], name[NAME_BYTES] = "";
    look l = {dir, -1, false};
    bool found = !walk(dir, &l, copy_name, name);

    out[0] = '\0';
    if (found) (void)snprintf(out, 2 * NAME_BYTES, "%s", name);
    if (found || (l.mark_fd = open_mark(dir, O_RDONLY)) < 0) return found;
    for (size_t i = 0; i < sizeof trees / sizeof *trees && !found; i++) {
        if (sw_path_join(path, dir, trees[i], NULL) != SW_OK) continue;
        found = !walk(path, &l, copy_name, name);
        if (found) (void)snprintf(out, 2 * NAME_BYTES, "%s/%s", trees[i], name);
    }
    close(l.mark_fd);
    return found;
}

/* Any entry but the mark. */
static bool find_any(char out[NAME_BYTES], const char *dir)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    bool found = false;

    while (list && !found && (entry = readdir(list))) {
        if (is_dots(entry->d_name) || !strcmp(entry->d_name, SW_WORK_MARK)) continue;
        (void)snprintf(out, NAME_BYTES, "%s", entry->d_name);
        found = true;
    }
    if (list) closedir(list);
    return found;
}

bool sw_work_owns(const char *dir, const char *name)
{
    int fd = open_mark(dir, O_RDONLY);
    bool is_ours = fd >= 0 && judge_mark(fd, dir) == MARK_OURS && is_noted(fd, dir, name);

    if (fd >= 0) close(fd);
    return is_ours;
}

sw_code sw_work_check(const char *dir, sw_err *err)
{
    char name[2 * NAME_BYTES];

    if (!find_other(name, dir)) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%s: holds %s, which swage did not put there; move it away or "
                   "choose another output", dir, name);
}

sw_code sw_work_claim(const char *dir, sw_err *err)
{
    char name[NAME_BYTES] = SW_WORK_MARK;
    mark_state state;
    sw_code rc = read_mark(&state, dir, err);

    if (rc != SW_OK) return rc;
    if (state == MARK_OURS) return sw_work_check(dir, err);
    if (find_any(name, dir) || state == MARK_OTHER)
        return SW_FAIL(err, SW_E_USAGE, "%s: holds %s and no " SW_WORK_MARK " of this directory, "
                       "so it is no unfinished run that this version left; move it away or choose "
                       "another output", dir, name);
    return write_mark(dir, err);
}

/* --- taking it, and taking it away --- */

static sw_code not_a_directory(const char *dir, int failed, sw_err *err)
{
    struct stat info;

    if (lstat(dir, &info) == 0 && S_ISLNK(info.st_mode))
        return SW_FAIL(err, SW_E_USAGE, "%s: is a link, and unfinished work is kept in a directory "
                       "of that name; remove the link or choose another output", dir);
    if (failed == ENOTDIR)
        return SW_FAIL(err, SW_E_USAGE, "%s: is in the way; remove it or choose another output",
                       dir);
    return SW_FAIL(err, SW_E_IO, "%s: cannot be opened: %s", dir, strerror(failed));
}

sw_code sw_work_lock(int *out, const char *dir, sw_err *err)
{
    struct stat opened, named;
    int fd, failed = 0;

    do fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return not_a_directory(dir, errno, err);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) failed = errno;
    /* without locks on this file system the directory is ours, and debris stays */
    if (failed == ENOTSUP || failed == ENOSYS || failed == ENOLCK) failed = 0;
    /* between the open and the lock another run may have removed it */
    if (!failed && (fstat(fd, &opened) != 0 || lstat(dir, &named) != 0 ||
                    opened.st_ino != named.st_ino || opened.st_dev != named.st_dev))
        failed = EWOULDBLOCK;
    if (!failed) {
        *out = fd;
        return SW_OK;
    }
    close(fd);
    if (failed == EWOULDBLOCK)
        return SW_FAIL(err, SW_E_USAGE, "%s: another run is at work on it", dir);
    return SW_FAIL(err, SW_E_IO, "%s: cannot be locked: %s", dir, strerror(failed));
}

sw_code sw_work_cannot_make(const char *dir, int failed, sw_err *err)
{
    char parent[SW_PATH_BYTES];

    sw_path_parent(parent, dir);
    sw_path_strip(parent);
    if (failed == ENOENT || failed == ENOTDIR)
        return SW_FAIL(err, SW_E_IO, "%s: no such folder; make it, or name another for the output",
                       parent);
    return SW_FAIL(err, SW_E_IO, "%s: cannot create: %s", dir, strerror(failed));
}

/* Two outputs of one process, or two containers with the same number, take different K. */
sw_code sw_work_make(char dir[SW_PATH_BYTES], int *lock_fd, const char *path, sw_err *err)
{
    for (int k = 0; k < WORK_ATTEMPTS; k++) {
        int n = snprintf(dir, SW_PATH_BYTES, "%s" SW_WORK_SUFFIX "-%ld.%d", path, (long)getpid(),
                         k);
        sw_err why = {0};
        sw_code rc;
        if (n < 0 || n >= SW_PATH_BYTES)
            return SW_FAIL(err, SW_E_IO, "%s: path too long", path);
        if (mkdir(dir, 0755) != 0) {
            if (errno == EEXIST) continue;
            return sw_work_cannot_make(dir, errno, err);
        }
        if ((rc = sw_work_lock(lock_fd, dir, &why)) != SW_OK) {
            if (!sw_path_exists(dir)) continue; /* another run has taken it for a killed one's */
            (void)rmdir(dir);
            return SW_FAIL(err, rc, "%s", why.text);
        }
        if ((rc = sw_work_claim(dir, err)) == SW_OK) return SW_OK;
        close(*lock_fd);
        (void)rmdir(dir);
        return rc;
    }
    return SW_FAIL(err, SW_E_IO, "%s: cannot create and lock a work directory beside it", path);
}

static void empty_tree(const char *path, const look *l)
{
    bool has_removed;

    do {
        has_removed = false;
        (void)walk(path, l, remove_file, &has_removed);
    } while (has_removed);
    (void)rmdir(path);
}

static bool remove_above(void *ctx, int dir_fd, const char *name)
{
    if (!strcmp(name, SW_WORK_MARK) || !strcmp(name, SW_WORK_TREE) || !strcmp(name, SW_WORK_OLD))
        return true;
    return remove_file(ctx, dir_fd, name);
}

/* The journal is removed before the data it lists, so that a removal that was stopped half-way is
 * not taken for work in progress. */
static bool empty(const char *dir, int mark_fd)
{
    char path[SW_PATH_BYTES];
    look above = {dir, -1, true}, inside = {dir, mark_fd, true};
    bool has_removed = false;

    (void)walk(dir, &above, remove_above, &has_removed);
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        if (sw_path_join(path, dir, trees[i], NULL) == SW_OK) empty_tree(path, &inside);
    return !find_any(path, dir);
}

static void take_away(const char *dir, bool is_whole)
{
    char path[SW_PATH_BYTES];
    int fd = open_mark(dir, O_RDONLY);
    mark_state state = fd >= 0 ? judge_mark(fd, dir) : MARK_NONE;
    bool is_empty = false;

    if (state == MARK_OURS) is_empty = empty(dir, fd);
    else if (state == MARK_CUT) is_empty = !find_any(path, dir);
    if (fd >= 0) close(fd);
    if (!is_empty || !is_whole || sw_path_join(path, dir, SW_WORK_MARK, NULL) != SW_OK) return;
    (void)unlink(path);
    (void)rmdir(dir);
}

void sw_work_remove(const char *dir) { take_away(dir, true); }

void sw_work_empty(const char *dir) { take_away(dir, false); }

/* --- what killed runs left --- */

bool sw_work_bring_back(const char *dir, const char *path)
{
    char old[SW_PATH_BYTES];
    mark_state state;

    return read_mark(&state, dir, NULL) == SW_OK && state == MARK_OURS && !sw_path_exists(path) &&
           sw_path_join(old, dir, SW_WORK_OLD, NULL) == SW_OK && sw_path_is_dir(old) &&
           sw_rename_new(old, path) == 0;
}

/* Is the name that of a work directory for an output called `base`: "BASE.partial-PID.K"? */
static bool is_work_name(const char *name, const char *base)
{
    size_t n = strlen(base), n_mark = strlen(SW_WORK_SUFFIX "-"), n_digits;

    if (strncmp(name, base, n) != 0 || strncmp(name + n, SW_WORK_SUFFIX "-", n_mark) != 0)
        return false;
    name += n + n_mark;
    n_digits = strspn(name, "0123456789");
    if (!n_digits || name[n_digits] != '.') return false;
    name += n_digits + 1;
    n_digits = strspn(name, "0123456789");
    return n_digits && !name[n_digits];
}

static bool sweep_one(const char *dir, const char *path)
{
    struct stat info;
    mark_state state;
    sw_err why = {0};
    int fd;

    if (lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode) ||
        read_mark(&state, dir, NULL) != SW_OK || state == MARK_OTHER)
        return false;
    if (sw_work_lock(&fd, dir, &why) != SW_OK)
        return state != MARK_NONE && why.code == SW_E_USAGE;
    if (state == MARK_NONE) {
        (void)rmdir(dir); /* killed before it had a mark, if nothing is in it */
    } else {
        (void)sw_work_bring_back(dir, path);
        sw_work_remove(dir);
    }
    close(fd);
    return false;
}

sw_code sw_work_clear_way(const char *path, bool may_replace, sw_err *err)
{
    char parent[SW_PATH_BYTES], dir[SW_PATH_BYTES];
    const char *base = sw_path_base(path);
    const struct dirent *entry;
    bool is_busy = false;
    DIR *list;

    sw_path_parent(parent, path);
    if (!(list = opendir(parent))) return SW_OK;
    while ((entry = readdir(list)))
        if (is_work_name(entry->d_name, base) &&
            sw_path_join(dir, parent, entry->d_name, NULL) == SW_OK && sweep_one(dir, path))
            is_busy = true;
    closedir(list);
    if (!is_busy || may_replace) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%s: another run is at work on it", path);
}
