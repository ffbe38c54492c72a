#include "consist/host.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace consist {
namespace {

TEST(UsableCores, AQuotaIsWorthWholeCores) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("-1 100000"), 0);
  EXPECT_EQ(cores_of_quota(""), 0);
  EXPECT_EQ(cores_of_quota("100000"), 0);
  EXPECT_EQ(cores_of_quota("100000 0"), 0);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_EQ(cores_of_quota("100000 100000"), 1);
  EXPECT_EQ(cores_of_quota("1600000 100000"), 16);
  EXPECT_EQ(cores_of_quota("1600001 100000\n"), 17);
}

TEST(UsableCores, AreThoseThatTheProcessMayRunOn) {
  const int all = usable_cores();
  EXPECT_GE(all, 1);
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(all, CPU_COUNT(&before));
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace consist
