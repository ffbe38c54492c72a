// What the members of a group tell each other before they have a connection, through the job's store.
#pragma once

#include <string>
#include <vector>

#include "consist/transport.h"

namespace consist {

/// Every member gives its text under `topic`, each a topic of its own per group, and gets all of them by member. Throws PeerError
/// naming the member that gave none within the job's timeout.
std::vector<std::string> exchange_texts(Job& job, const GroupRequest& group, const std::string& topic, const std::string& own);
/// Member 0's text, for all.
std::string share_text(Job& job, const GroupRequest& group, const std::string& topic, const std::string& text_of_first);

}  // namespace consist
