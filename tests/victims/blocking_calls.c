/* Blocks for ever in the call that is asked for, and says so if it ever returns: for no reason, with
   EINTR or otherwise. Compiled as a library, which a Python process loads. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

static int ends[2];
static char byte[1], big[1 << 20];
static struct timespec span = {100000, 0};
static struct timeval interval = {100000, 0};

static int a_pipe(void) { return pipe(ends), ends[0]; }
static int a_full_pipe(void) {
    a_pipe();
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], big, sizeof big) > 0) {}
    fcntl(ends[1], F_SETFL, 0);
    return ends[1];
}
static int a_pair(void) { return socketpair(AF_UNIX, SOCK_STREAM, 0, ends), ends[0]; }
static int a_full_pair(void) {
    a_pair();
    while (send(ends[0], big, sizeof big, MSG_DONTWAIT) > 0) {}
    return ends[0];
}
static int with_timeout(int fd, int which) {
    return setsockopt(fd, SOL_SOCKET, which, &interval, sizeof interval), fd;
}
static int a_listener(int family) {
    int fd = socket(family, SOCK_STREAM, 0);
    struct sockaddr_un unix_name = {AF_UNIX};
    struct sockaddr_in net_name = {AF_INET};
    if (family == AF_UNIX) bind(fd, (void *)&unix_name, sizeof(sa_family_t));  /* any free name */
    else bind(fd, (void *)&net_name, sizeof net_name);
    return listen(fd, 0), fd;
}
static int a_full_listener_is_called(void) {
    int fd = a_listener(AF_UNIX);
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    getsockname(fd, (void *)&name, &size);
    connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, size);
    return connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, size);
}
static int a_set(fd_set *set) { FD_ZERO(set); FD_SET(a_pipe(), set); return ends[0] + 1; }
static int an_epoll(void) {
    int fd = epoll_create1(0);
    struct epoll_event event = {EPOLLIN};
    return epoll_ctl(fd, EPOLL_CTL_ADD, a_pipe(), &event), fd;
}
static int a_child(void) {
    int pid = fork();
    if (pid == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); pause(); _exit(0); }
    return pid;
}
static int a_child_with(int how) {  /* a lock of a file that it has open by itself */
    char name[] = "lock-XXXXXX";
    int fd = mkstemp(name);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct flock all = {F_WRLCK};
        if (how == 0) flock(open(name, O_RDWR), LOCK_EX); else fcntl(fd, F_SETLK, &all);
        pause();
    }
    return usleep(200000), fd;
}
static sigset_t *a_signal(void) {
    static sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return &set;
}
static int a_semaphore(void) { return semget(IPC_PRIVATE, 1, 0600); }
static int a_queue(void) {
    return msgget(IPC_PRIVATE, 0600);
}
static struct sembuf down = {0, -1, 0};
static sem_t empty;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static unsigned word;
static struct timespec *later(int seconds) {
    static struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    moment.tv_sec += seconds;
    return &moment;
}
static void *sleeper(void *nothing) { for (;;) pause(); return nothing; }
static int a_fifo(void) {
    char name[64];
    snprintf(name, sizeof name, "fifo-%d", getpid());
    mkfifo(name, 0600);
    return open(name, O_RDWR);
}

#define KINDS \
    K(read_pipe, read(a_pipe(), byte, 1)) \
    K(readv_pipe, readv(a_pipe(), &(struct iovec){byte, 1}, 1)) \
    K(write_pipe, write(a_full_pipe(), big, 1)) \
    K(write_more_than_fits, ({ int e[2]; pipe(e); write(e[1], big, sizeof big); })) \
    K(writev_more_than_fits, ({ int e[2]; pipe(e); writev(e[1], (struct iovec[]){{big, sizeof big}, {big, sizeof big}}, 2); })) \
    K(send_more_than_fits, send(a_pair(), big, sizeof big, 0)) \
    K(sendmsg_more_than_fits, sendmsg(a_pair(), &(struct msghdr){.msg_iov = &(struct iovec){big, sizeof big}, .msg_iovlen = 1}, 0)) \
    K(recv_all_of_it, ({ int e[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, e); write(e[1], big, 1); recv(e[0], big, 100, MSG_WAITALL); })) \
    K(recvmsg_all_of_it, ({ int e[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, e); write(e[1], big, 1); recvmsg(e[0], &(struct msghdr){.msg_iov = &(struct iovec){big, 100}, .msg_iovlen = 1}, MSG_WAITALL); })) \
    K(read_socket, read(a_pair(), byte, 1)) \
    K(recv_socket, recv(a_pair(), byte, 1, 0)) \
    K(recvmsg_socket, recvmsg(a_pair(), &(struct msghdr){.msg_iov = &(struct iovec){byte, 1}, .msg_iovlen = 1}, 0)) \
    K(recv_with_timeout, recv(with_timeout(a_pair(), SO_RCVTIMEO), byte, 1, 0)) \
    K(send_socket, send(a_full_pair(), big, sizeof big, 0)) \
    K(send_with_timeout, send(with_timeout(a_full_pair(), SO_SNDTIMEO), big, sizeof big, 0)) \
    K(accept_unix, accept(a_listener(AF_UNIX), NULL, NULL)) \
    K(accept_tcp, accept(a_listener(AF_INET), NULL, NULL)) \
    K(accept_with_timeout, accept(with_timeout(a_listener(AF_INET), SO_RCVTIMEO), NULL, NULL)) \
    K(connect_unix, a_full_listener_is_called()) \
    K(poll_pipe, poll(&(struct pollfd){a_pipe(), POLLIN}, 1, -1)) \
    K(poll_with_timeout, poll(&(struct pollfd){a_pipe(), POLLIN}, 1, 100000000)) \
    K(ppoll_pipe, ppoll(&(struct pollfd){a_pipe(), POLLIN}, 1, &span, NULL)) \
    K(select_pipe, ({ fd_set s; int n = a_set(&s); select(n, &s, NULL, NULL, NULL); })) \
    K(select_with_timeout, ({ fd_set s; int n = a_set(&s); select(n, &s, NULL, NULL, &interval); })) \
    K(pselect_pipe, ({ fd_set s; int n = a_set(&s); pselect(n, &s, NULL, NULL, &span, NULL); })) \
    K(epoll_pipe, ({ struct epoll_event e; epoll_wait(an_epoll(), &e, 1, -1); })) \
    K(epoll_with_timeout, ({ struct epoll_event e; epoll_wait(an_epoll(), &e, 1, 100000000); })) \
    K(epoll_with_mask, ({ struct epoll_event e; epoll_pwait(an_epoll(), &e, 1, -1, a_signal()); })) \
    K(wait4_child, waitpid(a_child(), NULL, 0)) \
    K(wait4_stopped, waitpid(a_child(), NULL, WUNTRACED | WCONTINUED)) \
    K(waitid_child, waitid(P_PID, a_child(), NULL, WEXITED)) \
    K(nanosleep_long, nanosleep(&span, NULL)) \
    K(sleep_until, clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, later(100000), NULL)) \
    K(pause_any, pause()) \
    K(sigsuspend_any, sigsuspend(a_signal())) \
    K(sigwaitinfo_one, sigwaitinfo(a_signal(), NULL)) \
    K(sigtimedwait_one, sigtimedwait(a_signal(), NULL, &span)) \
    K(futex_word, syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0)) \
    K(futex_with_timeout, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &span, NULL, 0)) \
    K(sem_wait_empty, (sem_init(&empty, 0, 0), sem_wait(&empty))) \
    K(sem_timedwait_empty, (sem_init(&empty, 1, 0), sem_timedwait(&empty, later(100000)))) \
    K(mutex_twice, (pthread_mutex_lock(&mutex), pthread_mutex_lock(&mutex))) \
    K(condition_wait, (pthread_mutex_lock(&mutex), pthread_cond_wait(&condition, &mutex))) \
    K(thread_join, ({ pthread_t t; pthread_create(&t, NULL, sleeper, NULL); pthread_join(t, NULL); })) \
    K(semop_down, semop(a_semaphore(), &down, 1)) \
    K(semtimedop_down, semtimedop(a_semaphore(), &down, 1, &span)) \
    K(msgrcv_empty, msgrcv(a_queue(), big, 1, 0, 0)) \
    K(msgsnd_full, ({ int q = a_queue(); *(long *)big = 1; while (msgsnd(q, big, 4096, IPC_NOWAIT) == 0) {} msgsnd(q, big, 4096, 0); })) \
    K(flock_held, flock(a_child_with(0), LOCK_EX)) \
    K(fcntl_held, fcntl(a_child_with(1), F_SETLKW, &(struct flock){F_WRLCK})) \
    K(open_fifo, ({ char n[64]; snprintf(n, 64, "fifo-%d", getpid()); mkfifo(n, 0600); open(n, O_RDONLY); })) \
    K(read_fifo, read(a_fifo(), byte, 1)) \
    K(read_inotify, read(inotify_init1(0), big, sizeof big)) \
    K(read_eventfd, read(eventfd(0, 0), big, 8)) \
    K(read_timerfd, ({ int f = timerfd_create(CLOCK_MONOTONIC, 0); timerfd_settime(f, 0, &(struct itimerspec){{0, 0}, {100000, 0}}, NULL); read(f, big, 8); })) \
    K(read_signalfd, read(signalfd(-1, a_signal(), 0), big, sizeof big)) \
    K(read_terminal, ({ int a, b; openpty(&a, &b, NULL, NULL, NULL); read(b, byte, 1); })) \
    K(splice_pipe, ({ int f = a_pipe(), g[2]; pipe(g); splice(f, NULL, g[1], NULL, 1, 0); })) \
    K(tee_pipe, ({ int f = a_pipe(), g[2]; pipe(g); tee(f, g[1], 1, 0); }))

#define K(name, call) #name "\n"
const char *kinds(void) { return KINDS; }
#undef K
#define K(name, call) if (!strcmp(kind, #name)) result = call;

void block(const char *kind) {
    long result = -2;
    errno = 0;
    KINDS
    printf("%s returned %ld: %s\n", kind, result, strerror(errno));
    fflush(stdout);
    _exit(1);
}
