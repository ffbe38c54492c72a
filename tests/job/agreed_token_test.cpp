// A token that ranks of one host agree on where nobody has set one.
#include "core/job/agreed_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>
#include <set>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "core/job/job.h"
#include "tests/job/in_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

fs::path folder_in(const TemporaryFolder& parent) {
  return parent.path() / ("consist-" + std::to_string(geteuid()));
}

TEST(AgreedToken, IsTheSameForAllRanksOfAStartAndNoOther) {
  const TemporaryFolder parent;
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 16; ++rank)
    ranks.push_back(std::async(std::launch::async, [&] { return HostToken("job 1", parent.path()).token(); }));
  std::set<std::string> tokens;
  for (auto& rank : ranks) tokens.insert(rank.get());
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_GE(tokens.begin()->size(), min_token_characters);
  EXPECT_NE(HostToken("job 2", parent.path()).token(), *tokens.begin());
}

TEST(AgreedToken, LiesWhereTheUserAloneCanReadAndIsTakenAway) {
  const TemporaryFolder parent;
  HostToken token("job", parent.path());
  struct stat found {};
  for (const auto& entry : fs::recursive_directory_iterator(parent.path())) {
    ASSERT_EQ(lstat(entry.path().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 077U, 0U) << entry.path();
  }
  const auto files = [&] { return std::distance(fs::directory_iterator(folder_in(parent)), fs::directory_iterator()); };
  EXPECT_EQ(files(), 1) << "the files of ranks that came later are gone";
  token.remove();
  EXPECT_EQ(files(), 0);
  EXPECT_NE(HostToken("job", parent.path()).token(), token.token()) << "the next job has another one";
}

TEST(AgreedToken, AFolderThatOthersMayOpenIsRefused) {
  const TemporaryFolder parent;
  const auto complaint = [&] {
    try {
      HostToken("job", parent.path());
      return std::string("no error");
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
  };
  fs::create_directory(folder_in(parent));
  fs::permissions(folder_in(parent), fs::perms::owner_all | fs::perms::group_read);
  EXPECT_THAT(complaint(), HasSubstr("a folder of this user that nobody else may open. Set CONSIST_JOB_TOKEN="));
  fs::remove(folder_in(parent));
  const TemporaryFolder elsewhere;
  fs::create_directory_symlink(elsewhere.path(), folder_in(parent));
  EXPECT_THAT(complaint(), HasSubstr("nobody else may open"));
}

TEST(AgreedToken, RanksWithoutATokenJoin) {
  std::vector<JobAddress> addresses = testing::make_addresses(3, 20s);
  for (JobAddress& address : addresses) {
    address.token.clear();
    address.channel = TokenChannel::host;
    address.start = "AgreedToken.RanksWithoutATokenJoin " + std::to_string(getpid());
  }
  std::vector<std::string> tokens(3);
  for (const auto& error : testing::run_ranks(addresses, [&](JoinedJob& job) {
         tokens[static_cast<std::size_t>(job.rank())] = job.token();
         job.leave(20s);
       })) {
    EXPECT_EQ(testing::text_of(error), "");
  }
  EXPECT_GE(tokens[0].size(), min_token_characters);
  EXPECT_EQ(tokens[1], tokens[0]);
  EXPECT_EQ(tokens[2], tokens[0]);
  const fs::path left = HostToken::default_parent() / ("consist-" + std::to_string(geteuid()));
  EXPECT_NE(HostToken(addresses[0].start).token(), tokens[0]) << "rank 0 has taken the file away from " << left;
  HostToken(addresses[0].start).remove();
}

}  // namespace
}  // namespace consist
