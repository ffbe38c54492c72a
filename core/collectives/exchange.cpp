#include "consist/host_transport.h"

namespace consist {
namespace {

std::string name_of(const GroupRequest& group, const std::string& topic) {
  return "group/" + group.name + "/" + topic;
}

}  // namespace

std::vector<std::string> exchange_texts(Job& job, const GroupRequest& group, const std::string& topic, const std::string& own) {
  return job.all_gather(name_of(group, topic), own, job.timeout(), group.ranks);
}

std::string share_text(Job& job, const GroupRequest& group, const std::string& topic, const std::string& text_of_first) {
  return job.broadcast(name_of(group, topic), text_of_first, job.timeout(), group.ranks);
}

}  // namespace consist
