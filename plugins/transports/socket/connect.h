// Finds the other members of a group and connects to all of them.
#pragma once

#include <memory>
#include <string>

#include "consist/transport.h"
#include "plugins/transports/socket/tcp_links.h"

namespace consist {

struct SocketOptions {
  std::string interface;          ///< name of an interface or a local address; empty: any
  std::int64_t buffer_bytes = 0;  ///< of each socket and direction; 0: as the system sizes them
};

/// Called by all members at about the same time. Addresses are exchanged through the job; every connection is authenticated with
/// the job's token, the group and its two ends. Throws UsageError for an unknown interface, PeerError when a member does not
/// come.
std::unique_ptr<TcpLinks> connect_members(Job& job, const GroupRequest& group, const SocketOptions& options);

/// The interface that `interface` names, by its name or a local address; empty stays empty. Throws UsageError listing what there
/// is.
std::string interface_name(const std::string& interface);

}  // namespace consist
