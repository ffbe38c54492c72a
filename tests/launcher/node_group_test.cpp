// Launchers that agree on who makes the next generation, where nodes may be fewer than the job was begun with.
#include "launch/start/node_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "consist/socket.h"

namespace consist::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class NodeGroupTest : public ::testing::Test {
 protected:
  NodeGroupTest() {
    network::Socket probe = network::listen_on("127.0.0.1", 0);
    port_ = network::local_endpoint(probe).port;
  }

  NodeOptions options(int node) const {
    return {.nodes = nodes_,
            .node = node,
            .host = "127.0.0.1",
            .port = port_,
            .token = "0123456789abcdef0123456789abcdef",
            .timeout = 3s,
            .least = least_,
            .wait = 100ms,
            .wait_for_others = 1s,
            .unfit = unfit_};
  }
  std::unique_ptr<NodeGroup> launcher(int node) const { return std::make_unique<NodeGroup>(options(node)); }
  std::vector<std::unique_ptr<NodeGroup>> launchers(const std::vector<int>& nodes) const {
    std::vector<std::unique_ptr<NodeGroup>> made;
    for (const int node : nodes) made.push_back(launcher(node));
    return made;
  }

  using Groups = std::vector<NodeGroup*>;
  /// Calls `body` with each group on a thread of its own.
  template <typename Body>
  static void at_once(const Groups& groups, const Body& body) {
    std::vector<std::future<void>> calls;
    for (NodeGroup* group : groups) calls.push_back(std::async(std::launch::async, [&body, group] { body(*group); }));
    for (std::future<void>& call : calls) call.get();
  }
  static bool form(NodeGroup& group) {
    return group.form([] { return false; });
  }
  /// Forms these groups, which then have these members.
  static void expect_formed(const Groups& groups, const std::vector<int>& members) {
    at_once(groups, [&](NodeGroup& group) {
      ASSERT_TRUE(form(group));
      EXPECT_EQ(group.members(), members);
      const NodeGroup::Start start = group.agree_on_start({.ranks = 2, .nonce = "nonce"});
      EXPECT_EQ(start.ranks, 2 * static_cast<int>(members.size()));
    });
  }
  /// A call that all make meets the loss of one of these nodes.
  static void expect_lost(const Groups& groups, const std::vector<int>& nodes) {
    at_once(groups, [&](NodeGroup& group) {
      try {
        group.agree_on_end({});
        ADD_FAILURE() << "nobody is missed";
      } catch (const PeerError& lost) {
        EXPECT_THAT(nodes, ::testing::Contains(group.node_of(lost.rank())));
        group.dissolve(lost.rank());
      }
    });
  }

  int nodes_ = 4, least_ = 1;
  std::map<int, std::string> unfit_;
  std::uint16_t port_ = 0;
};

TEST_F(NodeGroupTest, BeginsWithAll) {
  const auto all = launchers({0, 1, 2, 3});
  expect_formed({all[2].get(), all[0].get(), all[3].get(), all[1].get()}, {0, 1, 2, 3});
  at_once({all[0].get(), all[1].get(), all[2].get(), all[3].get()}, [](NodeGroup& group) { group.leave(); });
}

TEST_F(NodeGroupTest, OneIsLeftOutAndRanksAreNumberedAnew) {
  auto all = launchers({0, 1, 2, 3});
  const Groups left{all[0].get(), all[2].get(), all[3].get()};
  expect_formed({all[0].get(), all[1].get(), all[2].get(), all[3].get()}, {0, 1, 2, 3});
  all[1].reset();
  expect_lost(left, {1});
  at_once(left, [&](NodeGroup& group) {
    ASSERT_TRUE(form(group));
    EXPECT_THAT(group.members(), ElementsAre(0, 2, 3));
    const int place = &group == all[0].get() ? 0 : &group == all[2].get() ? 1 : 2;
    EXPECT_EQ(group.agree_on_start({.ranks = 8, .nonce = "nonce"}).first_rank, 8 * place);
  });
}

TEST_F(NodeGroupTest, TwoThatVanishAtOnceAreLeftOut) {
  auto all = launchers({0, 1, 2, 3});
  const Groups left{all[0].get(), all[3].get()};
  expect_formed({all[0].get(), all[1].get(), all[2].get(), all[3].get()}, {0, 1, 2, 3});
  all[1].reset();
  all[2].reset();
  expect_lost(left, {1, 2});
  expect_formed(left, {0, 3});
}

TEST_F(NodeGroupTest, OneThatVanishesWhileTheyAgreeIsLeftOut) {
  auto all = launchers({0, 1, 2, 3});
  const Groups left{all[0].get(), all[2].get()};
  expect_formed({all[0].get(), all[1].get(), all[2].get(), all[3].get()}, {0, 1, 2, 3});
  all[1].reset();
  all[3].reset();
  expect_lost(left, {1, 3});
  // It answers the roll call, and is gone before the group forms.
  std::future<void> vanishing = std::async(std::launch::async, [&] {
    const std::optional<Crew> crew = answer_roll_call(
        {"127.0.0.1", port_, options(3).token, nodes_, 3}, [] { return false; }, 20s);
    ASSERT_TRUE(crew.has_value());
    EXPECT_THAT(crew->nodes, ::testing::Contains(3));
  });
  expect_formed(left, {0, 2});
  vanishing.get();
}

TEST_F(NodeGroupTest, OneThatComesWhileTheyAgreeOrLaterIsTakenInNext) {
  nodes_ = 3;
  auto all = launchers({0, 1, 2});
  const Groups left{all[0].get(), all[1].get()};
  expect_formed({all[0].get(), all[1].get(), all[2].get()}, {0, 1, 2});
  all[2].reset();
  expect_lost(left, {2});
  expect_formed(left, {0, 1});
  EXPECT_FALSE(all[0]->may_grow());
  const auto newcomer = launcher(2);
  std::future<void> coming = std::async(std::launch::async, [&] { expect_formed({newcomer.get()}, {0, 1, 2}); });
  for (const auto end = Clock::now() + 20s; !all[0]->may_grow();) {
    ASSERT_LT(Clock::now(), end) << "nobody notices the newcomer";
    std::this_thread::sleep_for(20ms);
  }
  at_once(left, [](NodeGroup& group) {
    group.leave();
    group.dissolve();
  });
  expect_formed(left, {0, 1, 2});
  coming.get();
}

TEST_F(NodeGroupTest, WithANumberThatDoesNotFitTheyWait) {
  nodes_ = 3;
  unfit_ = {{2, "the global batch cannot be divided"}};
  auto all = launchers({0, 1, 2});
  const Groups left{all[0].get(), all[1].get()};
  expect_formed({all[0].get(), all[1].get(), all[2].get()}, {0, 1, 2});
  all[2].reset();
  expect_lost(left, {2});
  std::atomic<bool> comes{false};
  const auto in_its_place = launcher(2);
  std::future<void> late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(2500ms);  // longer than `wait` and `wait_for_others`
    comes = true;
    expect_formed({in_its_place.get()}, {0, 1, 2});
  });
  at_once(left, [&](NodeGroup& group) {
    ASSERT_TRUE(form(group));
    EXPECT_TRUE(comes);
    EXPECT_THAT(group.members(), ElementsAre(0, 1, 2));
    group.agree_on_start({.ranks = 2, .nonce = "nonce"});
  });
  late.get();
}

TEST_F(NodeGroupTest, FewerThanTheLeastAreNotEnough) {
  nodes_ = 3;
  least_ = 2;
  auto all = launchers({0, 1, 2});
  expect_formed({all[0].get(), all[1].get(), all[2].get()}, {0, 1, 2});
  all[1].reset();
  all[2].reset();
  expect_lost({all[0].get()}, {1, 2});
  const auto until = Clock::now() + 2500ms;
  EXPECT_FALSE(all[0]->form([&] { return Clock::now() > until; }));
}

TEST_F(NodeGroupTest, WhoeverWaitsIsToldOfTheEndAndOfANewerLauncher) {
  const MeetingPlace here{"127.0.0.1", port_, options(0).token, nodes_, 0};
  auto roll_call = std::make_unique<RollCall>(here);
  const auto wait_as = [&](int node) {
    return std::async(std::launch::async, [this, node, here]() -> std::string {
      MeetingPlace place = here;
      place.node = node;
      try {
        answer_roll_call(
            place, [] { return false; }, 20s);
      } catch (const NotNeeded& not_needed) {
        return not_needed.why;
      } catch (const UsageError& error) {
        return error.what();
      }
      return "";
    });
  };
  const auto serve_until = [&](const auto& done) {
    for (const auto end = Clock::now() + 20s; !done() && Clock::now() < end; std::this_thread::sleep_for(10ms))
      roll_call->serve();
  };
  std::future<std::string> older = wait_as(2);
  serve_until([&] { return roll_call->present().size() == 2; });
  EXPECT_THAT(roll_call->present(), ElementsAre(0, 2));
  std::future<std::string> newer = wait_as(2);
  serve_until([&] { return older.wait_for(0ms) == std::future_status::ready; });
  EXPECT_EQ(older.get(), "another launcher has come as node 2");
  EXPECT_THAT(roll_call->present(), ElementsAre(0, 2));
  std::future<std::string> stranger = wait_as(7);
  serve_until([&] { return stranger.wait_for(0ms) == std::future_status::ready; });
  EXPECT_THAT(stranger.get(), HasSubstr("node 0 was started with --nnodes 4"));
  roll_call.reset();
  EXPECT_EQ(newer.get(), "the job has ended without this node");
}

TEST_F(NodeGroupTest, AWaitForNodeZeroCanBeEnded) {
  const auto until = Clock::now() + 300ms;
  EXPECT_FALSE(launcher(1)->form([&] { return Clock::now() > until; }));
}

}  // namespace
}  // namespace consist::launch
