/* What Linux alone takes for a box: a process in fresh namespaces, with fresh mounts, and nothing in it.
 *
 *   cc -O2 -static -o limit limit.c && ./limit ROUNDS
 *
 * prints lines "CASE<tab>RUNNING<tab>GONE": microseconds from the clone until the child says that it is done with its
 * preparations, and until it has been waited for. The cases take turns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAP = 1, MOUNTS = 2, LOOPBACK = 4, EXEC = 8 };

static const struct {
    const char *name;
    unsigned long namespaces;
    int work;
} CASES[] = {
    {"fork", 0, 0},
    {"exec", 0, EXEC},
    {"user", CLONE_NEWUSER, MAP},
    {"most", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, MAP},
    {"all", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET, MAP},
    {"mounts", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET,
     MAP | MOUNTS | LOOPBACK},
};

static void must(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

static void map_ids(unsigned uid, unsigned gid) {
    char text[64];
    put("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %u 1", gid);
    put("/proc/self/gid_map", text);
    snprintf(text, sizeof text, "0 %u 1", uid);
    put("/proc/self/uid_map", text);
}

/* The kinds and the number of mounts that are fresh in a box: proc, scratch, terminals, and what covers files. */
static void make_mounts(void) {
    static const char *const scratch[] = {"/tmp/a", "/tmp/b", "/tmp/c", "/tmp/d", "/tmp/e"};
    static const char *const covered[] = {"/tmp/1", "/tmp/2", "/tmp/3", "/tmp/4"};
    must(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "mount proc");
    must(mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777") == 0, "mount tmpfs");
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++) {
        must(mkdir(scratch[i], 0755) == 0, "mkdir");
        must(mount("tmpfs", scratch[i], "tmpfs", MS_NOSUID | MS_NODEV, "size=64m") == 0, "mount tmpfs");
    }
    for (size_t i = 0; i < sizeof covered / sizeof *covered; i++) {
        int fd = open(covered[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        must(fd >= 0, "open");
        close(fd);
        must(mount("/dev/null", covered[i], NULL, MS_BIND, NULL) == 0, "bind");
    }
    must(mkdir("/tmp/pts", 0755) == 0, "mkdir");
    must(mount("devpts", "/tmp/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666") == 0, "mount devpts");
}

static void raise_loopback(void) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0, "raising lo");
    close(fd);
}

static void child(int work, int report, unsigned uid, unsigned gid) {
    if (work & MAP) map_ids(uid, gid);
    if (work & MOUNTS) make_mounts();
    if (work & LOOPBACK) raise_loopback();
    if (work & EXEC) execl("/bin/true", "true", (char *)NULL); /* the pipe closes by itself: that is its report */
    must(write(report, "!", 1) == 1, "report");
    _exit(0);
}

static void measure(size_t which, int print) {
    int pipes[2], status;
    char byte;
    unsigned uid = getuid(), gid = getgid();
    must(pipe2(pipes, O_CLOEXEC) == 0, "pipe");
    double start = now();
    pid_t pid = syscall(SYS_clone, CASES[which].namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
    must(pid >= 0, CASES[which].name);
    if (pid == 0) child(CASES[which].work, pipes[1], uid, gid);
    close(pipes[1]);
    ssize_t got = read(pipes[0], &byte, 1);
    double running = now() - start;
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    double gone = now() - start;
    close(pipes[0]);
    if (status != 0 || got < 0) {
        fprintf(stderr, "%s: a child ended with status %d\n", CASES[which].name, status);
        exit(1);
    }
    if (print) printf("%s\t%.1f\t%.1f\n", CASES[which].name, running, gone);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    struct timespec rest = {0, 5000000}; /* for what Linux takes down after a child has gone */
    for (int round = 0; round <= rounds; round++)
        for (size_t which = 0; which < sizeof CASES / sizeof *CASES; which++) {
            nanosleep(&rest, NULL);
            measure(which, round > 0);
        }
    return 0;
}
