// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of `tramptool trace` that is in the traced process. It does what the tool orders: maps trampolines, writes sites. And
// it gives each thread a buffer and a shadow stack at its first record.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "machine.h"
#include "protocol.h"
#include "unwind.h"

enum { SHADOW = 1 << 23, PRUNED_FROM = 1 << 19, MADV_NOHUGEPAGE_ = 15, SHADOW_ROOM = SHADOW - sizeof(struct frame), ENTRY = 16, REGIONS = 512, RING = 8, BATCH = 8, TRIES = 40, ESRCH_ = -3, ETIMEDOUT_ = -110, ENOMEM_ = 12, EACCES_ = 13, EEXIST_ = 17, COMMAND = 4096 };

// What trampolines know of a thread (docs/trampolines.md, "Records"), and what is ours alone. A new thread has what stands here:
// its cursor says that there is no room, so its first record comes to tramptool_refill. A trampoline looks at shadow again after
// that: until then, the limit promises room.
struct words {
    uint64_t cursor, limit, count, shadow, shadow_limit;
    uint64_t no_room; // the cursor of trampolines that are there to call a routine
    uint64_t shadow_base;
    uint32_t tries;      // how often it has waited for the next buffer, a moment each time
    uint32_t turn;       // how many buffers it has had
    uint32_t ring[RING]; // of a flight recorder: those that it has, as their numbers and 1
    uint32_t context;    // 0 for the thread's own; NEW until it has a number
    pid_t process;       // of a context that others have interrupted
    uint32_t tid;        // 0 until it has a buffer; the child of vfork goes on with its parent's
};
enum { NEW = -1 };
#define FRESH {.shadow_limit = -1, .cursor = BUFFER, .no_room = BUFFER}
static __thread struct words words __attribute__((tls_model("initial-exec"))) = FRESH;
_Static_assert(__builtin_offsetof(struct words, no_room) == 40, "session/src/forms.rs has it there");

// Where a process finds its session.
#define SOCKET "TRAMPTOOL_TRACE_SOCKET"

static struct pool *pool;
static pthread_key_t at_exit;
static pid_t process;
static int followed = 1;
static uint32_t same = 1, *same_process = &same; // a page that a copy of this process's memory has as zeros
static char socket_name[sizeof(struct sockaddr_un)]; // programs may change their environment
static struct { uint64_t address, bytes; } trampolines[REGIONS];
static _Atomic uint32_t regions;

static struct buffer *table(void) { return (struct buffer *)((char *)pool + TABLE); }
static char *buffer(uint32_t n) { return (char *)pool + FIRST_BUFFER + (size_t)n * 2 * BUFFER; }

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    return CALL(futex, word, op, value, timeout, 0, 0);
}

static struct moment now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (struct moment){ticks(), (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec};
}

static int take_this(uint32_t n, uint32_t is) {
    uint32_t *state = (uint32_t *)&table()[n].state;
    return *state == is && __atomic_compare_exchange_n(state, &is, TAKEN, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

// A free buffer, or -1. The first one, so that as few as the program needs take memory and are in the cache. If there is none, the
// oldest one of threads that have ended.
static int32_t take(void) {
    for (uint32_t n = 0; n < pool->buffers; n++)
        if (take_this(n, FREE)) return (int32_t)n;
    if (pool->mode != FLIGHT) return -1;
    for (int32_t oldest = 0; oldest >= 0;) {
        oldest = -1;
        for (uint32_t n = 0; n < pool->buffers; n++)
            if (table()[n].state == ENDED && (oldest < 0 || table()[n].taken.monotonic < table()[oldest].taken.monotonic)) oldest = n;
        if (oldest >= 0 && take_this(oldest, ENDED)) return oldest;
    }
    return -1;
}

// The tool is woken for some buffers at once: each time costs as much as many records. It looks by itself ten times a second, and whoever
// waits for a buffer wakes it.
static void give(uint32_t n, uint32_t state) {
    table()[n].state = state;
    if (state != FULL) return;
    uint32_t full = ++pool->full, quarter = pool->buffers / 4, some = quarter > BATCH ? BATCH : quarter ? quarter : 1;
    if (pool->sleeping && full % some == 0) futex(&pool->full, FUTEX_WAKE, 1, 0);
}

// Wait until a buffer may be free. 0 if it is of no use: the tool has ended, or all buffers are those of threads that sleep.
static int wait_for_room(void) {
    if (words.tries >= TRIES) return 0;
    const struct timespec moment = {.tv_nsec = 50000000};
    uint32_t seen = pool->freed;
    pool->waiting++;
    futex(&pool->full, FUTEX_WAKE, 1, 0);
    if (futex(&pool->freed, FUTEX_WAIT, seen, &moment) == ETIMEDOUT_) words.tries++;
    pool->waiting--;
    return !pool->stopped && CALL(kill, pool->tool, 0, 0, 0, 0, 0) != ESRCH_;
}

// A buffer for this thread, zeroed and in its name; -1 if there is none. Serials have no gaps: who takes one hands a buffer in.
static int32_t room(void) {
    static _Atomic uint32_t contexts;
    if (words.context == (uint32_t)NEW) words.context = ++contexts;
    int32_t n = -1;
    uint32_t serial = 0, *mine = 0;
    if (pool->mode == FLIGHT) {
        serial = __atomic_fetch_add(&words.turn, 1, __ATOMIC_RELAXED);
        mine = &words.ring[serial % pool->ring];
        n = (int32_t)*mine - 1;
    }
    if (n < 0) n = take();
    while (n < 0 && pool->mode == BLOCK && wait_for_room()) n = take();
    if (n < 0) return n;
    if (mine) *mine = n + 1;
    else serial = __atomic_fetch_add(&words.turn, 1, __ATOMIC_RELAXED);
    words.tries = 0;
    struct buffer *b = table() + n;
    b->pid = 0;
    memset(buffer(n), 0, BUFFER + 64);
    if (!words.tid) words.tid = CALL(gettid, 0, 0, 0, 0, 0, 0);
    b->tid = words.tid;
    b->taken = now();
    b->serial = serial;
    b->context = words.context;
    // Until then, it is nobody's.
    __atomic_store_n(&b->pid, (uint32_t)process, __ATOMIC_RELEASE);
    return n;
}

static int set_cursor(uint64_t seen, uint64_t to) {
    return __atomic_compare_exchange_n(&words.cursor, &seen, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// Leave the buffer that the cursor is in or has run out of. Whoever moves the cursor away from it hands it in, so that a signal's
// handler does not do it twice.
static void leave_buffer(uint64_t cursor) {
    uint64_t behind = cursor - (uint64_t)buffer(0), n = behind / (2 * BUFFER);
    if (set_cursor(cursor, BUFFER) && n < pool->buffers && pool->mode != FLIGHT) give(n, FULL);
}

// Give a thread that has none a shadow stack: an entry of zeros is its bottom. A signal's handler may do the same in the middle.
static void new_shadow(void) {
    static __thread uint64_t one[4] __attribute__((tls_model("initial-exec")));
    long at = CALL(mmap, 0, SHADOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int none = at < 0 && at > -4096;
    // Most threads use a page of it.
    if (!none) CALL(madvise, at, SHADOW, MADV_NOHUGEPAGE_, 0, 0, 0);
    // Without memory, the outermost function alone is recorded.
    uint64_t base = none ? (uint64_t)one : (uint64_t)at, bytes = none ? sizeof one : SHADOW_ROOM, zero = 0;
    pool->untraced += none;
    if (__atomic_compare_exchange_n(&words.shadow, &zero, base + ENTRY, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        words.shadow_limit = base + bytes;
        words.shadow_base = none ? 0 : base;
    } else if (!none) {
        CALL(munmap, base, SHADOW, 0, 0, 0, 0);
    }
}

static int in_trampolines(uint64_t at) {
    for (uint32_t n = 0; n < regions; n++)
        if (at - trampolines[n].address < trampolines[n].bytes) return 1;
    return 0;
}

// Take the entries out of the shadow stack that belong to no frame any more: longjmp or an exception has left it. The others stay in
// their order at every moment, for a signal's handler. A frame has ended if one that is called later has as much of the stack.
static void prune(uint64_t sp) {
    stack_t alt = {0};
    CALL(sigaltstack, 0, &alt, 0, 0, 0, 0);
    uint64_t low = (uint64_t)alt.ss_sp, size = alt.ss_flags & SS_DISABLE ? 0 : alt.ss_size;
    struct entry { uint64_t parent_ip, sp; } *end = (struct entry *)words.shadow, *kept = end;
    struct entry *bottom = (struct entry *)words.shadow_base, *to = bottom + 1;
    uint64_t above = sp - low < size ? 0 : sp;
    for (struct entry *entry = end - 1; entry > bottom; entry--) {
        int other_stack = entry->sp - low < size, same = kept < end && kept->sp == entry->sp;
        if (!other_stack && entry->sp <= above && !(same && in_trampolines(kept->parent_ip - 1))) continue;
        if (!other_stack) above = entry->sp;
        *--kept = *entry;
    }
    while (kept < end) *(volatile struct entry *)to++ = *kept++;
    words.shadow = (uint64_t)to;
}

static void forked(void);

// Called where a thread has no room for a record: so a new thread comes here first. Signals come here too, in the middle of it.
__attribute__((visibility("hidden"))) void tramptool_refill(void) {
    // A child that nobody has reported: by a system call of the program's own. The buffer is its parent's.
    if (!*same_process) forked();
    if (words.shadow == 0) new_shadow();
    if (words.shadow_base && words.shadow - words.shadow_base > PRUNED_FROM) prune((uint64_t)__builtin_frame_address(0));
    if (!(words.cursor & BUFFER)) return;
    leave_buffer(words.cursor);
    if (pool->stopped || !followed) {
        // Trampolines that see no room for the way back are quickest.
        words.shadow_limit = 0;
        return;
    }
    int32_t n = room();
    uint64_t seen = words.cursor;
    if (n < 0) {
        pool->lost++;
    } else if (!(seen & BUFFER) || !set_cursor(seen, (uint64_t)buffer(n))) {
        // A signal's handler has made room: this one goes back empty.
        if (pool->mode != FLIGHT) give(n, FULL);
    } else {
        pthread_setspecific(at_exit, &words);
    }
}

// Called where a function begins with which the recording ends.
__attribute__((visibility("hidden"))) void tramptool_last(void) {
    words.no_room = BUFFER;
    if (__atomic_exchange_n(&pool->stopped, 1, __ATOMIC_SEQ_CST)) return;
    pool->full++;
    futex(&pool->full, FUTEX_WAKE, 1, 0);
    futex(&pool->freed, FUTEX_WAKE, INT32_MAX, 0);
}

// Calls are open that end with the thread, or with its coroutine: a record of no function says so.
static void calls_end(void) {
    if (words.cursor & BUFFER) tramptool_refill();
    uint64_t slot = __atomic_fetch_add(&words.cursor, 16, __ATOMIC_RELAXED);
    if (slot & BUFFER) return;
    uint64_t *record = (uint64_t *)slot;
    record[0] = ticks();
    __atomic_store_n(record + 1, THREAD_END, __ATOMIC_RELEASE);
}

static uint64_t block(uint64_t signals) {
    uint64_t before = 0;
    CALL(rt_sigprocmask, SIG_SETMASK, &signals, &before, sizeof before, 0, 0);
    return before;
}

// Leave all buffers of a flight recorder. No signal's handler takes another one meanwhile.
static void leave_ring(void) {
    uint64_t signals = block(-1);
    leave_buffer(words.cursor);
    for (uint32_t n = 0; n < RING; n++)
        if (words.ring[n]) give(words.ring[n] - 1, ENDED), words.ring[n] = 0;
    block(signals);
}

// A thread ends. Destructors of others may come later and record: they get a buffer of their own, and end here again.
static void thread_ends(void *unused) {
    (void)unused;
    if (words.shadow_base && words.shadow != words.shadow_base + ENTRY) calls_end();
    if (pool->mode == FLIGHT) leave_ring();
    else leave_buffer(words.cursor);
    if (words.shadow_base) prune((uint64_t)__builtin_frame_address(0));
    if (words.shadow_base && words.shadow == words.shadow_base + ENTRY) {
        uint64_t base = words.shadow_base;
        words.shadow_base = words.shadow = 0;
        words.shadow_limit = -1;
        CALL(munmap, base, SHADOW, 0, 0, 0, 0);
    }
}

// Another context begins or goes on, on a stack of its own: a new one begins as a thread does. While others run, a context keeps its
// buffer, if not too many do. No signal comes in the middle.
static _Atomic uint32_t kept;
static struct buffer *buffer_of(const struct words *context) {
    return context->cursor & BUFFER ? 0 : table() + (context->cursor - (uint64_t)buffer(0)) / (2 * BUFFER);
}
__attribute__((noinline)) static void leave_context(struct words *mine) {
    uint64_t signals = block(-1);
    if (kept >= pool->buffers / 2) leave_buffer(words.cursor);
    *mine = words;
    mine->process = process;
    struct buffer *has = buffer_of(mine);
    kept += !!has;
    // The thread may be gone when it goes on.
    if (has && mine->context) has->tid = process;
    words = (struct words)FRESH;
    words.context = NEW;
    block(signals);
}

// A context goes on. Whichever ran before has saved what it needs, or has ended.
__attribute__((noinline)) static void go_on(struct words *mine) {
    uint64_t signals = block(-1);
    thread_ends(0);
    if (mine->process != process) {
        // Its buffers are those of the parent.
        mine->cursor = BUFFER, mine->turn = 0, mine->tid = 0;
        memset(mine->ring, 0, sizeof mine->ring);
    }
    struct buffer *has = buffer_of(mine);
    kept -= !!has;
    if (mine->context) mine->tid = CALL(gettid, 0, 0, 0, 0, 0, 0);
    if (has && mine->context) has->tid = mine->tid;
    words = *mine;
    block(signals);
}

// The program calls this one in place of the C library's. Its frame is on the stack that is left.
typedef int swap(ucontext_t *, const ucontext_t *);
__attribute__((visibility("default"))) int swapcontext(ucontext_t *from, const ucontext_t *to) {
    static swap *_Atomic real;
    if (!real) real = (swap *)dlsym(RTLD_NEXT, __func__);
    if (!pool) return real(from, to);
    struct words mine;
    leave_context(&mine);
    int result = real(from, to);
    go_on(&mine);
    return result;
}

// libgcc's unwinder asks for what it has to know of a frame, with the last byte of the call as `pc`. Those of trampolines are described
// for the thread that asks, behind its shadow stack.
struct dwarf_eh_bases { void *text, *data, *function; };
typedef const void *find_fde(void *, struct dwarf_eh_bases *);
__attribute__((visibility("default"))) const void *_Unwind_Find_FDE(void *pc, struct dwarf_eh_bases *bases) {
    if (in_trampolines((uint64_t)pc)) {
        *bases = (struct dwarf_eh_bases){.function = pc};
        if (!words.shadow_base) return 0;
        return describe((struct frame *)(words.shadow_base + SHADOW_ROOM), (uint64_t)pc, words.shadow);
    }
    static find_fde *_Atomic real;
    if (!real) real = (find_fde *)dlsym(RTLD_NEXT, __func__);
    // The C library loads it for itself alone, when a thread is cancelled.
    if (!real) real = (find_fde *)dlsym(dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD), __func__);
    return real ? real(pc, bases) : 0;
}

static int send_all(int to, const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        long n = CALL(sendto, to, (const char *)from + done, bytes - done, MSG_NOSIGNAL, 0, 0);
        if (n <= 0) return 0;
        done += n;
    }
    return 1;
}

// The program's path, a newline, and the text of /proc/self/maps, in memory of MAPS bytes.
enum { MAPS = 1 << 20 };
static char *maps(size_t *bytes) {
    const size_t room = MAPS;
    char *text = (char *)CALL(mmap, 0, MAPS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long file = CALL(openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0, 0, 0), n = 1;
    *bytes = 0;
    if (file < 0 || (uintptr_t)text > -4096ul) return 0;
    long path = CALL(readlinkat, AT_FDCWD, "/proc/self/exe", text, 4096, 0, 0);
    if (path > 0) *bytes = path;
    text[(*bytes)++] = '\n';
    while (n > 0 && *bytes < room) {
        n = CALL(read, file, text + *bytes, room - *bytes, 0, 0, 0);
        if (n > 0) *bytes += n;
    }
    CALL(close, file, 0, 0, 0, 0, 0);
    return text;
}

static void objects_changed(void);

// Is this what a filter says? Then tell why nothing is recorded: the tool hears nothing of this process. What it forks says no more.
static int refused(uint32_t kind, long said) {
    static const char told[] = "tramptool: this process is not recorded: the system refuses it a socket, as a filter (seccomp) does\n";
    if (said != -EPERM && said != -EACCES && said != -ENOSYS) return 0;
    if (kind != FORKED) CALL(write, 2, told, sizeof told - 1, 0, 0, 0);
    return 1;
}

// Tell the tool that this process is here, and take its answer. The socket, or -1.
static int greet(uint32_t kind, struct answer *answer, int fds[2]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(socket_name), bytes = 0;
    if (!len || len + 2 > sizeof address.sun_path) return -1;
    memcpy(address.sun_path + 1, socket_name, len);
    long to = CALL(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0);
    if (to < 0) return refused(kind, to), -1;
    char *text = kind == FORKED ? 0 : maps(&bytes);
    struct hello hello = {
        .magic = MAGIC,
        .kind = kind,
        .pid = process,
        .parent = CALL(getppid, 0, 0, 0, 0, 0, 0),
        .tid = CALL(gettid, 0, 0, 0, 0, 0, 0),
        .text_bytes = bytes,
        .refill = (uint64_t)tramptool_refill,
        .words = (char *)&words - (char *)__builtin_thread_pointer(),
        .now = now(),
        .brk = _r_debug.r_brk,
        .loaded = (uint64_t)objects_changed,
        .last = (uint64_t)tramptool_last,
    };
    long said = CALL(connect, to, &address, offsetof(struct sockaddr_un, sun_path) + 1 + len, 0, 0, 0);
    int fine = !refused(kind, said) && said == 0 && send_all(to, &hello, sizeof hello) && send_all(to, text, bytes);
    if (text) CALL(munmap, text, MAPS, 0, 0, 0, 0);
    char control[CMSG_SPACE(2 * sizeof(int))];
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (fine) said = CALL(recvmsg, to, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL, 0, 0, 0);
    fine = fine && !refused(kind, said) && said == sizeof *answer && answer->magic == MAGIC;
    struct cmsghdr *sent = fine ? CMSG_FIRSTHDR(&message) : 0;
    if (kind != FORKED) {
        fine = sent && answer->pool_bytes && sent->cmsg_type == SCM_RIGHTS && sent->cmsg_len == CMSG_LEN(2 * sizeof(int));
        if (fine) memcpy(fds, CMSG_DATA(sent), 2 * sizeof(int));
    }
    if (fine) return to;
    CALL(close, to, 0, 0, 0, 0, 0);
    return -1;
}

// Map the pool where addresses of buffers have no bit FULL_BIT.
static struct pool *map_pool(int file, size_t bytes) {
    long at = CALL(mmap, 0, bytes + 2 * BUFFER, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at < 0 && at > -4096) return 0;
    long from = (at + 2 * BUFFER - 1) & -2l * BUFFER;
    long mapped = CALL(mmap, from, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    return mapped == from ? (struct pool *)from : 0;
}

// Write code: where pages may not be written and executed, through a file that has the rights of a debugger.
static int write_code(uint8_t *at, const uint8_t *bytes, uint32_t len, int memory) {
    if (memory >= 0) return CALL(pwrite64, memory, bytes, len, at, 0, 0) == (long)len;
    memcpy(at, bytes, len);
    __builtin___clear_cache((char *)at, (char *)at + len);
    return 1;
}

// Do what the tool has ordered. Nobody executes what is changed: only this thread is there, or the loader has just mapped it.
static struct obeyed obey(const struct order *order, uint32_t count, int file) {
    struct obeyed done = {0, 0};
    int memory = -1;
    for (; count && !done.failed; count--, order++) {
        uint8_t *at = (uint8_t *)order->address;
        long result = 0;
        if (order->kind == MAP) {
            result = CALL(mmap, at, order->len, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, order->offset);
            // Sites without their trampolines stay as they are. An old kernel takes the address as a wish.
            if (result != (long)at) result = result >= 0 || result < -4095 ? -EEXIST_ : result;
            else if (regions == REGIONS) result = -ENOMEM_;
            else trampolines[regions].address = result, trampolines[regions++].bytes = order->len, result = 0;
        } else if (order->kind == PROTECT && memory < 0) {
            uint64_t protection = order->offset & GUARDED ? order->offset - GUARDED + guard() : order->offset;
            result = CALL(mprotect, at, order->len, protection, 0, 0, 0);
            if (result) memory = CALL(openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0, 0, 0);
            if (memory >= 0) result = 0;
        } else if (order->kind == WRITE && memcmp(at, order->before, order->len)) {
            done.strange++;
        } else if (order->kind == WRITE && !write_code(at, order->after, order->len, memory)) {
            result = -EACCES_;
        }
        done.failed = -result;
    }
    if (memory >= 0) CALL(close, memory, 0, 0, 0, 0, 0);
    return done;
}

// The child of fork has this thread alone. Its parent goes on with the buffer.
static void forked(void) {
    struct answer answer;
    int fds[2];
    process = CALL(getpid, 0, 0, 0, 0, 0, 0);
    *same_process = 1;
    words.cursor = BUFFER;
    memset(words.ring, 0, sizeof words.ring);
    words.turn = words.tid = 0;
    // Nobody wants it, or nobody is there: its records go nowhere.
    int tool = greet(FORKED, &answer, fds);
    followed = tool >= 0 && answer.pool_bytes;
    if (tool >= 0) CALL(close, tool, 0, 0, 0, 0, 0);
}

// The C library runs no handlers of pthread_atfork for the children of these two, so the program calls ours.
typedef pid_t fork_alone(void);
__attribute__((visibility("default"))) pid_t _Fork(void) {
    static fork_alone *_Atomic real;
    if (!real) real = (fork_alone *)dlsym(RTLD_NEXT, __func__);
    pid_t child = real();
    if (child == 0 && pool) forked();
    return child;
}

struct start { int (*function)(void *); void *argument; };
static int start_child(void *at) {
    struct start start = *(struct start *)at;
    forked();
    return start.function(start.argument);
}

typedef int start_clone(int (*)(void *), void *, int, void *, ...);
__attribute__((visibility("default"))) int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
    static start_clone *_Atomic real;
    if (!real) real = (start_clone *)dlsym(RTLD_NEXT, "clone");
    va_list rest;
    va_start(rest, argument);
    pid_t *parent_tid = va_arg(rest, pid_t *);
    void *tls = va_arg(rest, void *);
    pid_t *child_tid = va_arg(rest, pid_t *);
    va_end(rest);
    // With the memory of its parent, a child writes to its parent's buffer.
    if (pool && function && stack && !(flags & CLONE_VM)) {
        struct start *start = (struct start *)((uintptr_t)stack & -16ul) - 1;
        *start = (struct start){function, argument};
        function = start_child, stack = argument = start;
    }
    return real(function, stack, flags, argument, parent_tid, tls, child_tid);
}
extern __typeof__(clone) __clone __attribute__((alias("clone"), visibility("default"), nothrow, leaf));

// Map the answer's orders and do what they say. What came with the answer is closed.
static void obey_answer(int tool, const struct answer *answer, const int fds[2], int ready) {
    // With no orders, there is no file.
    struct obeyed done = {answer->orders ? ENOMEM_ : 0, 0};
    // The trampolines behind them may be large, and are to have the places that the kernel would give the file.
    size_t bytes = answer->orders * sizeof(struct order);
    long file = CALL(mmap, 0, bytes, PROT_READ, MAP_PRIVATE, fds[1], 0);
    if (ready && (file >= 0 || file < -4095)) {
        done = obey((const struct order *)file, answer->orders, fds[1]);
        CALL(munmap, file, bytes, 0, 0, 0, 0);
    }
    send_all(tool, &done, sizeof done);
    CALL(close, tool, 0, 0, 0, 0, 0);
    CALL(close, fds[0], 0, 0, 0, 0, 0);
    CALL(close, fds[1], 0, 0, 0, 0, 0);
}

// The loader calls this, in place of a function for debuggers that does nothing, before and after each change of what is loaded. No
// function of a new object has run yet.
static void objects_changed(void) {
    struct answer answer;
    int fds[2];
    if (_r_debug.r_state != RT_CONSISTENT || !followed || pool->stopped) return;
    int tool = greet(LOADED, &answer, fds);
    if (tool >= 0) obey_answer(tool, &answer, fds, 1);
}

// Become the tool for this process: `words`, and these behind them. What it says first goes to `out`.
static void run_tool(char *words, int out) {
    char *all[COMMAND / 2 + 5], *rest, pid[12], **kept = environ;
    size_t n = 0;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(0, " ", &rest)) all[n++] = word;
    snprintf(pid, sizeof pid, "%d", process);
    memcpy(all + n, ((char *[]){"--arch", ARCH, "--process", pid, 0}), 5 * sizeof *all);
    // It is no part of the program: without this library, in a session of its own, with none of its files but stderr.
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11)) *kept++ = *variable;
    *kept = 0;
    CALL(setsid, 0, 0, 0, 0, 0, 0);
    CALL(dup3, CALL(openat, AT_FDCWD, "/dev/null", O_RDWR, 0, 0, 0), 0, 0, 0, 0, 0);
    CALL(dup3, out, 1, 0, 0, 0, 0);
    CALL(close_range, 3, -1u, 0, 0, 0, 0);
    // The program, whose child this is for a moment, does not wait for a child that it does not know.
    if (CALL(clone, SIGCHLD, 0, 0, 0, 0, 0) == 0) execvp(all[0], all);
    CALL(exit_group, 127, 0, 0, 0, 0, 0);
}

// Start the tool for this process and those that it will start. Its first line is the name of its socket.
static void start_session(void) {
    const char *command = getenv("TRAMPTOOL_TRACE");
    if (!command) command = "tramptool trace";
    char words[COMMAND];
    size_t bytes = 0;
    int ends[2], fits = strlen(command) < sizeof words, heard = 0;
    long child = -1, n = 1;
    if (fits && CALL(pipe2, ends, O_CLOEXEC, 0, 0, 0, 0) == 0) {
        strcpy(words, command);
        child = CALL(clone, SIGCHLD, 0, 0, 0, 0, 0);
        if (child == 0) run_tool(words, ends[1]);
        CALL(close, ends[1], 0, 0, 0, 0, 0);
        while (n && !heard && bytes < sizeof socket_name) {
            n = CALL(read, ends[0], socket_name + bytes, sizeof socket_name - bytes, 0, 0, 0);
            if (n > 0) bytes += n;
            heard = bytes && socket_name[bytes - 1] == '\n';
        }
        CALL(close, ends[0], 0, 0, 0, 0, 0);
    }
    if (child > 0) CALL(wait4, child, 0, 0, 0, 0, 0);
    socket_name[heard ? bytes - 1 : 0] = 0;
    const char *how = "valid: TRAMPTOOL_TRACE='/path/to/tramptool trace', options behind it";
    if (!heard) dprintf(2, "tramptool: process %d is not recorded: '%s' has not begun to record it; %s\n", process, command, how);
    // What it starts is recorded by the same one, or by none.
    setenv(SOCKET, socket_name, 1);
}

__attribute__((constructor)) static void attach(void) {
    struct answer answer;
    int fds[2];
    const char *name = getenv(SOCKET);
    process = CALL(getpid, 0, 0, 0, 0, 0, 0);
    if (!name) start_session();
    else if (strlen(name) < sizeof socket_name) strcpy(socket_name, name);
    int tool = greet(ATTACH, &answer, fds);
    if (tool < 0) return;
    pool = map_pool(fds[0], answer.pool_bytes);
    int ready = pool && pthread_key_create(&at_exit, thread_ends) == 0;
    if (ready) {
        pthread_atfork(0, 0, forked);
        long page = CALL(mmap, 0, TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (CALL(madvise, page, TABLE, MADV_WIPEONFORK, 0, 0, 0) == 0) same_process = (uint32_t *)page, *same_process = 1;
        tramptool_refill();
    }
    obey_answer(tool, &answer, fds, ready);
}
