// SPDX-License-Identifier: MIT OR Apache-2.0
// What the traced process and `tramptool trace` say to each other, and the memory that they share. session/src/protocol.rs and
// session/src/pool.rs have the same in Rust.
#include <stdint.h>

enum { MAGIC = 0x31545254, ATTACH = 0, FORKED = 1, LOADED = 2 };

// The clocks of the processor and of the system, read one after the other.
struct moment {
    uint64_t ticks, monotonic;
};

// From the process, with its program's path, a newline and the text of /proc/self/maps behind it.
struct hello {
    uint32_t magic, kind, pid, parent, tid, text_bytes;
    uint64_t refill; // address of the routine that gives a thread its buffer
    int64_t words;   // offset of the thread's words from its thread pointer
    struct moment now;
    uint64_t brk, loaded; // what the loader calls when it has loaded something, and the routine that says so
    uint64_t last;        // the routine that functions call with which the recording ends
};

// The answer, with two file descriptors: the pool, and a file that has the orders first and the trampolines behind them.
struct answer {
    uint32_t magic, orders;
    uint64_t pool_bytes, file_bytes;
};

enum { MAP = 1, PROTECT = 2, WRITE = 3 };
#define GUARDED (1ull << 32) // pages that indirect branches enter at landing pads alone, where the processor looks

struct order {
    uint32_t kind, len;
    uint64_t address;
    uint64_t offset; // MAP: in the file; PROTECT: PROT_*, and GUARDED
    uint8_t before[8], after[8];
};

// What became of the orders: the errno of the first that failed, and how many sites had other bytes.
struct obeyed {
    uint32_t failed, strange;
};

enum { FULL_BIT = 16, BUFFER = 1 << FULL_BIT, FIRST_BUFFER = 2 * BUFFER, TABLE = 4096 };
// ENDED: of a flight recorder, one of a thread that has ended. It is free if no other is.
enum { FREE = 0, TAKEN = 1, FULL = 2, ENDED = 3 };
// In place of what a trampoline writes to a record (docs/trampolines.md, "Records").
enum { THREAD_END = 4 };
enum { BLOCK = 0, DROP = 1, FLIGHT = 2 };

struct buffer {
    _Atomic uint32_t state;
    uint32_t pid, tid, serial; // of the thread's buffers, from 0 on
    struct moment taken;
    uint32_t context; // which of the process's coroutines; 0 for what runs on the stacks of threads
    uint32_t unused;
};

// At the beginning of the pool. The table of buffers is at TABLE. Buffer N is at FIRST_BUFFER + N * 2 * BUFFER, and half as long.
struct pool {
    uint32_t magic, buffers, mode, tool, ring;
    _Atomic uint32_t full, sleeping;  // buffers handed in, and whether the tool waits for more
    _Atomic uint32_t freed, waiting;  // buffers given back, and how many threads wait for one
    _Atomic uint32_t stopped;         // nobody writes records to the file any more
    uint32_t unused[2];
    _Atomic uint64_t lost, untraced;  // records without room; new threads without a shadow stack
};
