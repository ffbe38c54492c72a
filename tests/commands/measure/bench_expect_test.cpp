// consist bench expect: what a ring makes of links of a known speed, and what measured figures say about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "launch/measure/collective_model.h"
#include "tests/child_process.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;

test::ChildResult expect_command(std::vector<std::string> options) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist", "bench", "expect"};
  words.insert(words.end(), options.begin(), options.end());
  return test::run_child(words);
}

TEST(CollectiveModel, CountsStepsAndBytes) {
  const LinkModel links{.bandwidth = 100, .efficiency = 0.5, .latency = 1};
  const Expectation reduce = expect("all_reduce", 4, 1000, links);
  EXPECT_EQ(reduce.steps, 6);
  EXPECT_DOUBLE_EQ(reduce.bus_factor, 1.5);
  EXPECT_DOUBLE_EQ(reduce.bound, 100 / 1.5);
  EXPECT_DOUBLE_EQ(reduce.seconds, 6 + 1500 / 50.0);
  EXPECT_DOUBLE_EQ(reduce.algbw, 1000 / 36.0);
  EXPECT_DOUBLE_EQ(reduce.busbw, 1500 / 36.0);
  const Expectation gather = expect("all_gather", 4, 1000, links);
  EXPECT_EQ(gather.steps, 3);
  EXPECT_DOUBLE_EQ(gather.seconds, 3 + 750 / 50.0);
  EXPECT_THROW(expect("broadcast", 4, 1, links), UsageError);
  EXPECT_THROW(expect("all_reduce", 1, 1, links), UsageError);
}

TEST(CollectiveModel, FitsWhatMadeTheTimes) {
  const LinkModel links{.bandwidth = 5e9, .efficiency = 1, .latency = 30e-6};
  std::vector<TimedCall> calls;
  for (const double bytes : {1e4, 1e6, 1e8}) calls.push_back({bytes, expect("all_reduce", 3, bytes, links).seconds});
  const LinkModel fitted = fit_links("all_reduce", 3, calls);
  EXPECT_NEAR(fitted.bandwidth, 5e9, 5e4);
  EXPECT_NEAR(fitted.latency, 30e-6, 1e-9);
  // Times that fall with size need a negative latency; none is made up.
  const std::vector<TimedCall> odd{{1e6, 1e-3}, {1e8, 0.2}};
  EXPECT_EQ(fit_links("all_reduce", 3, odd).latency, 0);
  EXPECT_GT(fit_links("all_reduce", 3, odd).bandwidth, 0);
}

/// The case of docs/cases.md: all_reduce of 16 GB over 400 GB/s a node.
TEST(BenchExpect, JudgesTheUsersFigures) {
  const auto result =
      expect_command({"--members", "2,8,125", "--bytes", "16e9", "--bandwidth", "400e9", "--measured", "340e9,270e9,156e9"});
  EXPECT_EQ(result.status, 0) << result.output;
  const LinkModel links{.bandwidth = 400e9};
  EXPECT_THAT(compare_with_expectation(expect("all_reduce", 2, 16e9, links), 340e9), ::testing::EndsWith("good"));
  EXPECT_THAT(compare_with_expectation(expect("all_reduce", 125, 16e9, links), 156e9), ::testing::EndsWith("good"))
      << "though it is 39% of 400";
  // 8 nodes must each send 1.75 times the data: 270 GB/s would be 472 GB/s of a link that carries 400.
  EXPECT_THAT(compare_with_expectation(expect("all_reduce", 8, 16e9, links), 270e9),
              HasSubstr("more than these links can carry: as algbw it needs 472 GB/s"));
  for (const char* part : {"340.0 GB/s", "472 GB/s", "algbw 154 GB/s", "96% of what to expect: good", "An estimate"})
    EXPECT_THAT(result.output, HasSubstr(part));
  EXPECT_THAT(compare_with_expectation(expect("all_reduce", 125, 16e9, links), 80e9), HasSubstr("low; look at the path"));
}

TEST(BenchExpect, TakesTheRatesOfAMachine) {
  // docs/results/collectives.md: four H200s reach 353 GB/s busbw in 1 GiB.
  const auto result = expect_command({"--members", "4,16", "--bytes", "1073741824", "--machine", "h200"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("353.0"));
  EXPECT_THAT(result.output, HasSubstr("by the rates of h200, 8 ranks a node"));
  const auto h200 = std::make_shared<Machine>(*find_machine("h200"));
  EXPECT_NEAR(expect("all_reduce", 4, 1024.0 * 1024 * 1024, h200).busbw, 353e9, 1e6);
  EXPECT_LT(expect("all_reduce", 16, 1024.0 * 1024 * 1024, h200).busbw, 345e9) << "over the network of two nodes";
  EXPECT_THAT(expect_command({"--members", "4", "--bytes", "1e9", "--machine", "h200", "--bandwidth", "1e9"}).output,
              HasSubstr("give one of them"));
}

TEST(BenchExpect, TakesTheLinksOfATransport) {
  const auto h200 = std::make_shared<Machine>(*find_machine("h200"));
  const double bytes = 256.0 * 1024 * 1024;
  EXPECT_NEAR(expect("all_reduce", 4, bytes, h200, "socket").busbw, 3.83e9, 1e7) << "docs/results/collectives.md";
  EXPECT_EQ(expect("all_reduce", 4, bytes, h200, "nvlink").busbw, expect("all_reduce", 4, bytes, h200).busbw);
  EXPECT_EQ(expect("all_reduce", 4, bytes, h200, "socket").unknown, "");
  const auto result = expect_command({"--members", "4,8", "--bytes", "268435456", "--machine", "h200", "--transport", "socket"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ::testing::AllOf(HasSubstr("all_reduce of 268 MB over socket."), HasSubstr(" 3.8 ")));
  const auto unknown = expect_command({"--members", "2,4", "--bytes", "1e9", "--machine", "h200", "--transport", "pigeons"});
  EXPECT_THAT(unknown.output,
              HasSubstr("# How fast 'pigeons' is within a node of h200 is not known (known: efa, ib, nvlink, socket)"));
  EXPECT_EQ(unknown.output.find("How fast"), unknown.output.rfind("How fast")) << "once";
  EXPECT_THAT(expect_command({"--members", "2", "--bytes", "1e9", "--bandwidth", "1e9", "--transport", "socket"}).output,
              HasSubstr("--transport chooses among the links of a machine"));
}

TEST(BenchExpect, RefusesWhatMakesNoSense) {
  const std::vector<std::string> good{"--members", "2", "--bytes", "1e9", "--bandwidth", "1e9"};
  EXPECT_EQ(expect_command(good).status, 0);
  for (const auto& [option, value, says] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"--measured", "1e9,2e9", "2 figures for 1"},
                                                                      {"--efficiency", "1.5", "from 0 to 1"},
                                                                      {"--latency", "x", "--latency is 'x'"},
                                                                      {"--collective", "scan", "'scan'"},
                                                                      {"--efficiency", "0", "above 0"}}) {
    std::vector<std::string> words = good;
    words.insert(words.end(), {option, value});
    const auto result = expect_command(words);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
  }
  EXPECT_THAT(expect_command({"--members", "1", "--bytes", "1", "--bandwidth", "1"}).output, HasSubstr("at least 2"));
  EXPECT_THAT(expect_command({"--members", "2"}).output, HasSubstr("--bytes is missing"));
}

}  // namespace
}  // namespace consist::launch
