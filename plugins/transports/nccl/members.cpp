#include "plugins/transports/nccl/members.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "consist/error.h"
#include "consist/host_transport.h"

namespace consist::nccl {
namespace {

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

std::vector<Member> exchange_members(Job& job, const GroupRequest& group, const Member& own) {
  std::vector<Member> members;
  for (const std::string& text :
       exchange_texts(job, group, "nccl.member", own.host + "\n" + own.gpu + "\n" + own.library + "\n")) {
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
