/* A clock that is off by ROCSTEADY_TEST_SKEW seconds, for the processes that preload this.
 *
 * Only the wall clock is off. Deadlines by the wall clock are told apart from those by the
 * monotonic one by their size, and are given to the kernel by its own clock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define IS_WALL(deadline) ((deadline)->tv_sec > 1000000000)

static time_t skew(void) {
    const char *told = getenv("ROCSTEADY_TEST_SKEW");
    return told ? atol(told) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += skew();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into)
        *into = exact.tv_sec;
    return exact.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    struct timespec kernels = *deadline;
    if (!IS_WALL(deadline))
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, deadline);
    kernels.tv_sec -= skew();
    return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &kernels);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec kernels = *deadline;
    kernels.tv_sec -= skew();
    return sem_clockwait(semaphore, CLOCK_REALTIME, &kernels);
}
