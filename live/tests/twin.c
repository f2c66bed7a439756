/* A second function of the same name. */
__attribute__((noinline, used)) static long twin(long a)
{
	return a + 2;
}
