// Queues and waits of several ranks, played with durations.
#include "core/cost/playback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace consist {
namespace {

using ::testing::ElementsAre;

constexpr int compute = 0, network = 1, other = 2;

struct Script {
  TaskGraph graph;
  std::vector<double> seconds;
  TaskId add(int queue, double takes, std::vector<TaskId> waits = {}) {
    seconds.push_back(takes);
    return graph.add(queue, waits);
  }
  Actor actor() const { return {&graph, seconds}; }
};

std::vector<double> begins(const Playback& played, std::size_t actor) {
  std::vector<double> all;
  for (const LaunchTime& time : played.times[actor]) all.push_back(time.begin);
  return all;
}

TEST(Playback, QueuesRunBesideOneAnotherAndInOrder) {
  Script s;
  const TaskId first = s.add(compute, 3);
  const TaskId sent = s.add(network, 5, {first});
  s.add(compute, 1);
  s.add(network, 2);
  s.add(compute, 1, {sent});
  const Actor actor = s.actor();
  const Playback played = play({&actor, 1}, {});
  EXPECT_THAT(begins(played, 0), ElementsAre(0, 3, 3, 8, 8));
  EXPECT_EQ(played.seconds, 10);
  EXPECT_TRUE(played.stuck.empty());
}

TEST(Playback, EndsOfAMeetingWaitForEachOther) {
  Script early, late;
  early.add(network, 1);
  late.add(network, 2, {late.add(compute, 4)});
  const Actor actors[] = {early.actor(), late.actor()};
  std::vector<std::string> met;
  const PlaybackRules rules{.meetings = {{{1, network}, {0, network}}}, .on_meeting = [&](std::span<const ActorTask> tasks) {
                              for (const ActorTask& t : tasks)
                                met.push_back(std::to_string(t.actor) + ":" + std::to_string(t.task));
                            }};
  const Playback played = play(actors, rules);
  EXPECT_THAT(met, ElementsAre("1:1", "0:0")) << "in the meeting's order";
  EXPECT_EQ(played.times[0][0].begin, 4);
  EXPECT_EQ(played.times[0][0].end, 6) << "as long as the longest takes";
}

TEST(Playback, WhatRunsBesideComputeSlowsDown) {
  Script s;
  s.add(network, 4);
  s.add(compute, 2);
  s.add(compute, 1);  // behind the other without a pause
  const Actor actor = s.actor();
  const auto half = [](const ActorTask& task) { return task.task == 0 ? 0.5 : 1; };
  const Playback played = play({&actor, 1}, {.share_beside_compute = half});
  // In three seconds beside compute half of three is done, the rest takes two and a half.
  EXPECT_DOUBLE_EQ(played.times[0][0].end, 5.5);
  EXPECT_DOUBLE_EQ(played.times[0][2].end, 3);
}

TEST(Playback, ComputeSlowsDownBesideWhatRuns) {
  Script s;
  s.add(network, 3);
  s.add(compute, 4);
  s.add(other, 1);
  const Actor actor = s.actor();
  const auto left = [](const QueueEnd& end) { return end.queue == network ? 0.5 : end.queue == other ? 0.25 : 1; };
  const Playback played = play({&actor, 1}, {.compute_share_beside = left});
  // A quarter of the first second, beside both; half of the next two; the rest alone.
  EXPECT_DOUBLE_EQ(played.times[0][0].end, 3);
  EXPECT_DOUBLE_EQ(played.times[0][1].end, 3 + 4 - 0.25 - 1);

  // Both slow each other down: in four seconds the network gets three quarters of its three done, compute half of its two.
  Script both;
  both.add(network, 3);
  both.add(compute, 2);
  const Actor second = both.actor();
  const auto beside = [](const ActorTask& task) { return task.task == 0 ? 0.75 : 1; };
  const auto half = [](const QueueEnd& end) { return end.queue == network ? 0.5 : 1; };
  const Playback together = play({&second, 1}, {.share_beside_compute = beside, .compute_share_beside = half});
  EXPECT_DOUBLE_EQ(together.times[0][0].end, 4);
  EXPECT_DOUBLE_EQ(together.times[0][1].end, 4);
}

TEST(Playback, PairsOfQueuesSlowEachOtherDown) {
  Script s;
  s.add(compute, 20);
  s.add(network, 3);
  s.add(other, 2);
  s.add(other, 2);  // behind the other without a pause
  const Actor actor = s.actor();
  const Playback played = play({&actor, 1}, {.pairs = {{network, other, 0.5}}});
  // Half of their speed for six seconds, in which the first is done; of the other's four seconds one is left.
  EXPECT_DOUBLE_EQ(played.times[0][1].end, 6);
  EXPECT_DOUBLE_EQ(played.times[0][2].end, 4);
  EXPECT_DOUBLE_EQ(played.times[0][3].end, 7);
  EXPECT_DOUBLE_EQ(played.times[0][0].end, 20) << "no other queue";
}

TEST(Playback, NothingTakesTimeWithoutDurations) {
  Script s;
  s.add(network, 4, {s.add(compute, 2)});
  const Actor actor{&s.graph, {}};
  EXPECT_EQ(play({&actor, 1}, {}).seconds, 0);
}

TEST(Playback, ActorsThatBlockEachOtherAreNamedWithWhereTheyStand) {
  Script a, b;  // each sends on one queue once it has received on the other
  a.add(other, 1, {a.add(network, 1)});
  b.add(network, 1, {b.add(other, 1)});
  const Actor actors[] = {a.actor(), b.actor()};
  const Playback played = play(actors, {.meetings = {{{0, network}, {1, network}}, {{0, other}, {1, other}}}});
  ASSERT_EQ(played.stuck.size(), 4U);
  EXPECT_EQ(played.stuck[0].actor, 0);
  EXPECT_EQ(played.stuck[2].actor, 1);
}

TEST(Playback, AQueueThatMeetsOneWithoutTasksIsStuck) {
  Script sends, rests;
  sends.add(network, 1);
  rests.add(compute, 1);
  const Actor actors[] = {sends.actor(), rests.actor()};
  EXPECT_EQ(play(actors, {.meetings = {{{0, network}, {1, network}}}}).stuck.size(), 1U);
}

}  // namespace
}  // namespace consist
