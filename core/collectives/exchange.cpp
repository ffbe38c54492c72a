#include "consist/host_transport.h"

#include <exception>

#include "consist/error.h"

namespace consist {
namespace {

std::string key(const GroupRequest& group, const std::string& topic, int member) {
  return "group/" + group.name + "/" + topic + "/" + std::to_string(member);
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

}  // namespace

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

}  // namespace consist
