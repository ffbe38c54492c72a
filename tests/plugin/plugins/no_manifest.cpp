// A shared object like any other.
extern "C" [[gnu::visibility("default")]] int consist_test_answer() {
  return 42;
}
