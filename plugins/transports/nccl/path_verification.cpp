#include "plugins/transports/nccl/path_verification.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "consist/error.h"

namespace consist::nccl {
namespace {

constexpr std::string_view socket_prefix = "NET/Socket/";
/// Names that NCCL gives the AWS OFI plugin: since its version 1.12, before that, and with NCCL_NET=OFI.
constexpr std::string_view ofi_prefixes[] = {"NET/Libfabric/", "NET/AWS Libfabric/", "NET/OFI/"};

/// The prefix with which the path begins, without its last slash; empty: it is not one of the AWS OFI plugin.
std::string_view ofi_network(std::string_view path) {
  for (const std::string_view prefix : ofi_prefixes) {
    if (path.starts_with(prefix)) return prefix.substr(0, prefix.size() - 1);
  }
  return {};
}

bool is_direct_p2p(std::string_view path) {
  // "P2P/indirect" goes through a third GPU.
  return path.starts_with("P2P/") && !path.starts_with("P2P/indirect");
}

/// Devices are of no interest but for their kind: "NET/Socket/0" becomes "NET/Socket on eth0", "NET/Libfabric/3/GDRDMA/Shared"
/// "NET/Libfabric with GPUDirect".
std::string readable(const Connection& connection, const MemberFindings& member) {
  const std::string_view path = connection.path;
  if (const std::string_view network = ofi_network(path); !network.empty()) {
    return std::string(network) + (path.find("/GDRDMA") != std::string_view::npos ? " with GPUDirect" : " without GPUDirect");
  }
  if (!path.starts_with(socket_prefix)) return connection.path;
  std::size_t device = 0;
  const std::string_view digits = path.substr(socket_prefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
  if (error != std::errc() || device >= member.interfaces.size()) return connection.path;
  return "NET/Socket on " + member.interfaces[device];
}

std::string between(std::pair<int, int> pair, const std::vector<int>& ranks) {
  const auto name = [&](int member) {
    return member >= 0 && static_cast<std::size_t>(member) < ranks.size()
               ? std::to_string(ranks[static_cast<std::size_t>(member)])
               : "?";
  };
  return " between ranks " + name(pair.first) + " and " + name(pair.second);
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// Error text if NVLink does not connect members although NCCL reports peer-to-peer; empty if it does.
std::string link_problem(const std::string& asked, const std::vector<MemberFindings>& members, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const Connection& connection : members[i].connections) {
      if (!is_direct_p2p(connection.path)) continue;
      if (members[i].active_links == 0) {
        return asked + "but the GPU of rank " + std::to_string(ranks[i]) + " has no NVLink that is up (says NVML)";
      }
      const std::vector<int>& missing = members[i].not_linked;
      if (connection.from != static_cast<int>(i) || std::find(missing.begin(), missing.end(), connection.to) == missing.end())
        continue;
      return asked + "got " + connection.path + " without NVLink" + between({connection.from, connection.to}, ranks) +
             " (says NVML)";
    }
  }
  return {};
}

/// Error text, although NCCL reports the AWS OFI plugin, if a member's provider of libfabric is not efa or no connection uses the
/// plugin; empty if there is no problem.
std::string provider_problem(const std::string& asked, const std::vector<MemberFindings>& members,
                             const std::vector<int>& ranks) {
  bool used = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const Connection& connection : members[i].connections) used |= !ofi_network(connection.path).empty();
    if (members[i].providers == std::vector<std::string>{"efa"}) continue;
    std::string found;
    for (const std::string& provider : members[i].providers) found += (found.empty() ? "" : ", ") + provider;
    return asked +
           (found.empty() ? "but the AWS OFI plugin named no provider of libfabric" : "got libfabric's provider " + found) +
           " on rank " + std::to_string(ranks[i]);
  }
  if (used) return {};
  return asked +
         "but the members of the group are on one host and use NVLink among themselves; take transport nvlink, or give "
         "--efa.within-host=efa";
}

/// "provider efa, aws-ofi-nccl 1.16.2".
std::string provider_text(const std::vector<MemberFindings>& members) {
  std::set<std::string> plugins;
  for (const MemberFindings& member : members) {
    if (!member.plugin.empty()) plugins.insert(member.plugin);
  }
  return "provider efa" + (plugins.empty() ? std::string() : ", " + joined(plugins));
}

std::string links_text(const std::vector<MemberFindings>& members) {
  int least = members.front().active_links, most = least;
  for (const MemberFindings& member : members) {
    least = std::min(least, member.active_links);
    most = std::max(most, member.active_links);
  }
  if (least == unknown_links) return " over NVLink (by NCCL's topology; NVML does not tell)";
  return " over " + (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)) + " NVLinks";
}

}  // namespace

std::string_view name_of(Path path) noexcept {
  return path == Path::nvlink ? "nvlink" : path == Path::socket ? "socket" : "efa";
}

bool keeps_promise(const Promise& promise, const Connection& connection) {
  const std::string_view path = connection.path;
  if (promise.path == Path::nvlink) return is_direct_p2p(path);
  if (promise.path == Path::socket) return path.starts_with(socket_prefix);
  if (is_direct_p2p(path)) return promise.nvlink_within_host;
  return !ofi_network(path).empty() && (!promise.gpudirect || path.find("/GDRDMA") != std::string_view::npos);
}

Verdict verify_path(const Promise& promise, const std::vector<MemberFindings>& members, const std::vector<int>& ranks) {
  const std::string asked = "asked for " + std::string(name_of(promise.path)) + ", ";
  std::set<std::string> good;
  std::map<std::string, std::pair<int, int>> bad;  // the first pair of each kind
  bool peer_to_peer = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const MemberFindings& member = members[i];
    if (member.connections.empty()) {
      return {"", asked + "but NCCL named no connection of rank " + std::to_string(ranks[i]) + ": the path cannot be verified"};
    }
    if (!member.multicast.empty()) {
      return {"", asked + "got NVLink multicast on rank " + std::to_string(ranks[i]) + " ('" + member.multicast.front() +
                      "'); set NCCL_NVLS_ENABLE=0"};
    }
    for (const Connection& connection : member.connections) {
      const std::string text = readable(connection, member);
      if (keeps_promise(promise, connection)) {
        good.insert(text);
        peer_to_peer |= is_direct_p2p(connection.path);
      } else {
        bad.try_emplace(text, std::minmax({connection.from, connection.to}));
      }
    }
  }
  if (!bad.empty()) {
    std::string problem;
    for (const auto& [path, pair] : bad) problem += (problem.empty() ? asked + "got " : ", ") + path + between(pair, ranks);
    return {"", problem};
  }
  std::string path = joined(good);
  if (peer_to_peer) {
    if (std::string problem = link_problem(asked, members, ranks); !problem.empty()) return {"", problem};
    path += links_text(members);
  }
  if (promise.path == Path::efa) {
    if (std::string problem = provider_problem(asked, members, ranks); !problem.empty()) return {"", problem};
    path += "; " + provider_text(members);
  }
  return {path, ""};
}

// One fact a line: a word, then its values; texts come last, since they may hold spaces.
std::string encode(const MemberFindings& findings) {
  std::ostringstream out;
  out << "links " << findings.active_links << '\n';
  for (const int member : findings.not_linked) out << "not_linked " << member << '\n';
  for (const std::string& name : findings.interfaces) out << "interface " << name << '\n';
  for (const std::string& name : findings.providers) out << "provider " << name << '\n';
  if (!findings.plugin.empty()) out << "plugin " << findings.plugin << '\n';
  for (const std::string& line : findings.multicast) out << "multicast " << line << '\n';
  for (const Connection& c : findings.connections) out << "connection " << c.from << ' ' << c.to << ' ' << c.path << '\n';
  return out.str();
}

MemberFindings decode(std::string_view text) {
  MemberFindings findings;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string fact;
    words >> fact;
    int number = 0;
    const auto rest = [&] {
      std::string value;
      std::getline(words >> std::ws, value);
      return value;
    };
    if (fact == "links") {
      words >> findings.active_links;
    } else if (fact == "not_linked") {
      words >> number;
      findings.not_linked.push_back(number);
    } else if (fact == "interface") {
      findings.interfaces.push_back(rest());
    } else if (fact == "provider") {
      findings.providers.push_back(rest());
    } else if (fact == "plugin") {
      findings.plugin = rest();
    } else if (fact == "multicast") {
      findings.multicast.push_back(rest());
    } else if (fact == "connection") {
      Connection connection;
      words >> connection.from >> connection.to;
      connection.path = rest();
      findings.connections.push_back(std::move(connection));
    } else {
      throw DataError("a member of the group reports '" + line +
                      "' about its path, which is not understood; do all ranks run the same version?");
    }
    if (words.fail()) throw DataError("a member of the group reports '" + line + "' about its path, which is cut off");
  }
  return findings;
}

}  // namespace consist::nccl
