// Transports of host memory, for tests that they share: their links between ranks that are threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "consist/transport.h"
#include "core/collectives/ring.h"
#include "plugins/transports/efa/connect.h"
#include "plugins/transports/socket/connect.h"
#include "tests/job/in_process.h"

namespace consist::testing {

struct HostTransport {
  std::string name;
  std::function<std::unique_ptr<PointToPoint>(Job&, const GroupRequest&)> connect;
};

inline void PrintTo(const HostTransport& transport, std::ostream* stream) {
  *stream << transport.name;
}

inline const efa::HostOptions efa_over_tcp{.provider = "tcp", .device = {}, .libfabric = {}};

inline std::vector<HostTransport> host_transports() {
  std::vector<HostTransport> all{
      {"socket", [](Job& job, const GroupRequest& group) { return connect_members(job, group, SocketOptions{}); }}};
#ifdef CONSIST_WITH_LIBFABRIC
  all.push_back({"efa_tcp", [](Job& job, const GroupRequest& group) { return efa::connect_members(job, group, efa_over_tcp); }});
#endif
  return all;
}

inline GroupRequest whole_job(const Job& job, const std::string& name = "data.0") {
  GroupRequest group{name, {}, job.rank(), "cpu"};
  for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
  return group;
}

}  // namespace consist::testing
