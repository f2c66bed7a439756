/* Attaches to its own functions by include/tramptool_live.h. */
#include <stdio.h>
#include <tramptool_live.h>

__attribute__((noinline)) long add(long a, long b)
{
	__asm__ volatile("" : "+r"(a));
	return a + b;
}

static long times(long a, long b)
{
	return a * b;
}

static void entered(struct tl_call *call, void *data)
{
	*(long *)data += tl_argument(call, 0);
	tl_set_argument(call, 1, 100);
}

static void left(struct tl_call *call, void *data)
{
	(void)data;
	tl_set_result(call, tl_result(call) + 1);
}

#define CHECK(what)                                                              \
	do {                                                                     \
		if (!(what)) {                                                   \
			printf("line %d: %s: %s\n", __LINE__, #what, tl_last_error()); \
			return 1;                                                \
		}                                                                \
	} while (0)

int main(void)
{
	long seen = 0;
	CHECK(tl_open() == 0);
	CHECK(!tl_function("ad"));
	struct tl_function *f = tl_function("add");
	CHECK(f && tl_function_at((const void *)add));
	struct tl_hook *hook = tl_around(f, entered, left, &seen);
	CHECK(hook && add(1, 2) == 3);
	CHECK(tl_enable(hook) == 0 && add(1, 2) == 102 && seen == 1);
	CHECK(tl_disable(hook) == 0 && add(1, 2) == 3 && seen == 1);
	CHECK(!tl_replace(f, (const void *)times));
	return 0;
}
