#include "plugins/transports/nccl/members.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>

#include "consist/error.h"

namespace consist::nccl {
namespace {

std::string key(const GroupRequest& group, const std::string& topic, int member) {
  return "nccl/" + group.name + "/" + topic + "/" + std::to_string(member);
}

std::string text_of_member(Job& job, const GroupRequest& group, const std::string& topic, int member) {
  try {
    return job.get(key(group, topic, member), job.timeout());
  } catch (const SystemError& error) {
    job.blame(group.ranks[static_cast<std::size_t>(member)],
              "it did not come to group '" + group.name + "' (" + error.what() + ")");
    std::terminate();  // the compiler does not know that a virtual function never returns
  }
}

std::string rank_text(const GroupRequest& group, std::size_t member) {
  return "rank " + std::to_string(group.ranks[member]);
}

}  // namespace

std::string host_identity() {
  if (const char* const given = std::getenv("NCCL_HOSTID"); given != nullptr && *given != '\0') return given;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(name) + "/" + boot;
}

std::vector<std::string> exchange_texts(Job& job, const GroupRequest& group, const std::string& topic, const std::string& own) {
  job.put(key(group, topic, group.index), own);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) texts.push_back(text_of_member(job, group, topic, static_cast<int>(i)));
  return texts;
}

std::string share_text(Job& job, const GroupRequest& group, const std::string& topic, const std::string& text_of_first) {
  if (group.index == 0) job.put(key(group, topic, 0), text_of_first);
  return text_of_member(job, group, topic, 0);
}

std::vector<Member> exchange_members(Job& job, const GroupRequest& group, const Member& own) {
  std::vector<Member> members;
  for (const std::string& text : exchange_texts(job, group, "member", own.host + "\n" + own.gpu + "\n" + own.library + "\n")) {
    std::istringstream lines(text);
    Member& member = members.emplace_back();
    std::getline(lines, member.host);
    std::getline(lines, member.gpu);
    std::getline(lines, member.library);
  }
  return members;
}

void check_members(const std::vector<Member>& members, const GroupRequest& group) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].library != members[0].library) {
      throw UsageError(rank_text(group, 0) + " has NCCL " + members[0].library + ", " + rank_text(group, i) + " has NCCL " +
                       members[i].library + "; all ranks of a job need the same");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (members[i].host == members[j].host && members[i].gpu == members[j].gpu) {
        throw UsageError(rank_text(group, j) + " and " + rank_text(group, i) + " use the same GPU, " + members[i].gpu +
                         "; NCCL needs one for each. Start at most as many ranks on a host as it has GPUs");
      }
    }
  }
}

}  // namespace consist::nccl
