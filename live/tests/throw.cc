// Functions that are left by other ways than their return. Each counts how often its body runs, and how often a destructor does.

#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

extern "C" {

unsigned long bodies, cleanups;

struct Guard {
	~Guard()
	{
		__atomic_fetch_add(&cleanups, 1, __ATOMIC_RELAXED);
	}
};

// Throws its argument if that is odd.
__attribute__((noinline)) long throws(long n)
{
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	if (n & 1)
		throw n;
	return n;
}

// Ends with a jump to another one.
__attribute__((noinline)) long jumps_to(long n)
{
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	return throws(n + 2);
}

// Calls itself, and the other one at last.
__attribute__((noinline)) long deep(long depth, long n)
{
	Guard guard;
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	return (depth == 0 ? jumps_to(n) : deep(depth - 1, n)) + 1;
}

// What `deep` returns, and the number that is thrown, negative.
__attribute__((noinline)) long catches(long depth, long n)
{
	try {
		return deep(depth, n);
	} catch (long thrown) {
		return -thrown;
	}
}

static thread_local jmp_buf back;

// Returns its argument, throws it, or jumps out, as the last bits say.
__attribute__((noinline)) long leaves(long n)
{
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	if ((n & 3) == 1)
		throw n;
	if ((n & 3) == 2)
		longjmp(back, 1);
	return n;
}

// Calls it, and returns what it is given in any case.
__attribute__((noinline)) long comes_back(long n)
{
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	if (setjmp(back))
		return n;
	try {
		return leaves(n);
	} catch (long thrown) {
		return thrown;
	}
}

// The addresses of a trace from here.
__attribute__((noinline)) int traces(void **to, int most)
{
	int found = backtrace(to, most);
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	return found;
}

// The same, called by this one.
__attribute__((noinline)) int calls_traces(void **to, int most)
{
	int found = traces(to, most);
	__asm__ volatile("" : "+r"(found));
	return found;
}

// Ends the thread: by itself, or as it is cancelled.
__attribute__((noinline)) void ends(long how)
{
	Guard guard;
	__atomic_fetch_add(&bodies, 1, __ATOMIC_RELAXED);
	if (how == 0)
		pthread_exit(nullptr);
	pthread_cancel(pthread_self());
	for (;;)
		pause();
}

static void *start(void *how)
{
	Guard guard;
	ends(reinterpret_cast<long>(how));
	return nullptr;
}

// Runs a thread that ends so.
int thread_that_ends(long how)
{
	pthread_t thread;
	return pthread_create(&thread, nullptr, start, reinterpret_cast<void *>(how)) || pthread_join(thread, nullptr);
}

}
