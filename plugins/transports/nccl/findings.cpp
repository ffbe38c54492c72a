#include "plugins/transports/nccl/findings.h"

#include <sstream>
#include <utility>

#include "consist/error.h"

namespace consist::nccl {

// One fact a line: a word, then its values; texts come last, since they may hold spaces.
std::string encode(const MemberFindings& findings) {
  std::ostringstream out;
  out << "links " << findings.active_links << '\n';
  for (const int member : findings.not_linked) out << "not_linked " << member << '\n';
  for (const std::string& name : findings.interfaces) out << "interface " << name << '\n';
  for (const std::string& name : findings.hcas) out << "hca " << name << '\n';
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
    } else if (fact == "hca") {
      findings.hcas.push_back(rest());
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
