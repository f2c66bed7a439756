/* Attaches to its own functions by include/tramptool_live.h. */
#include <stdio.h>
#include <tramptool_live.h>

__attribute__((noinline)) long add(long a, long b)
{
	__asm__ volatile("" : "+r"(a));
	return a + b;
}

__attribute__((noinline)) long minus(long a, long b)
{
	__asm__ volatile("" : "+r"(a));
	return a - b;
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

/* Calls a function that has handlers, from one of them. */
static void calls_minus(struct tl_call *call, void *data)
{
	(void)call;
	*(long *)data += minus(9, 5);
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
	CHECK(!tl_around(tl_with_prototype(f, "long add(long"), entered, left, &seen));
	struct tl_hook *hook = tl_around(f, entered, left, &seen);
	CHECK(hook && add(1, 2) == 3);
	CHECK(tl_enable(hook) == 0 && add(1, 2) == 102 && seen == 1);
	CHECK(tl_disable(hook) == 0 && add(1, 2) == 3 && seen == 1);
	struct tl_function *framed = tl_with_prototype(tl_function_at((const void *)minus), "long minus(long a, long b)");
	struct tl_hook *both[] = { hook, tl_around(framed, entered, left, &seen) };
	CHECK(both[1] && tl_batch(both, 2, 1) == 0 && add(1, 2) == 102 && minus(5, 3) == -94 && seen == 7);
	CHECK(tl_batch(both, 2, 0) == 0 && add(1, 2) == 3 && minus(5, 3) == 2 && seen == 7);
	CHECK(tl_batch(both, 0, 1) == 0 && add(1, 2) == 3);
	struct tl_hook *calling = tl_around(f, calls_minus, NULL, &seen);
	CHECK(tl_missed() == 0 && tl_enable(calling) == 0 && tl_enable(both[1]) == 0);
	CHECK(add(1, 2) == 3 && seen == 11 && tl_missed() == 1);
	tl_detach(calling);
	tl_detach(both[1]);
	seen = 1;

	struct tl_hook *instead = tl_replace(f, (const void *)times);
	CHECK(instead && tl_enable(instead) == 0 && tl_enable(hook) == 0);
	CHECK(add(2, 3) == 201 && seen == 3);
	CHECK(((long (*)(long, long))tl_original(instead))(2, 3) == 5);
	tl_detach(hook);
	CHECK(add(2, 3) == 6);
	tl_detach(instead);
	CHECK(add(2, 3) == 5);

	struct tl_recorded records[4];
	struct tl_recorder *recorder = tl_record(&f, 1, 3);
	CHECK(recorder && tl_recorder_enable(recorder) == 0);
	CHECK(add(1, 1) == 2 && add(1, 2) == 3);
	CHECK(tl_recorder_disable(recorder) == 0);
	CHECK(tl_recorder_take(recorder, records, 2) == 2 && tl_recorder_dropped(recorder) == 1);
	CHECK(!records[0].returns && records[1].returns && records[0].time <= records[1].time);
	CHECK(records[0].thread == records[1].thread && records[0].function == 0);
	CHECK(tl_recorder_take(recorder, records, 4) == 1);
	tl_recorder_detach(recorder);
	return 0;
}
