#include "plugins/transports/nccl/log.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace consist::nccl {
namespace {

/// Takes a text apart from the left; every function says whether it found what it wanted and moves on only then.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool skip(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  bool skip_past(std::string_view expected) {
    const std::size_t at = text_.find(expected);
    if (at == std::string_view::npos) return false;
    text_.remove_prefix(at + expected.size());
    return true;
  }
  bool number(int& value) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return true;
  }
  std::string_view up_to(char stop) {
    const std::size_t at = std::min(text_.find(stop), text_.size());
    const std::string_view found = text_.substr(0, at);
    text_.remove_prefix(at);
    return found;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

/// "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 00 : ... via SHM/direct/direct",
/// "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0".
std::optional<Connection> read_connection(std::string_view message) {
  Cursor cursor(message);
  Connection connection;
  int channel = 0;
  if (!cursor.skip("Channel ") || !cursor.number(channel) || !cursor.skip_past(" : ")) return {};
  if (!cursor.number(connection.from) || !cursor.skip_past(" -> ") || !cursor.number(connection.to)) return {};
  if (!cursor.skip_past(" via ")) return {};
  connection.path = std::string(cursor.rest());
  return connection;
}

/// "NET/Socket : Using [0]eth0:10.0.0.4<0> [1]eth1:10.0.1.4<0>"
std::vector<std::string> read_interfaces(std::string_view message) {
  std::vector<std::string> names;
  Cursor cursor(message);
  if (!cursor.skip("NET/Socket : Using")) return names;
  int number = 0;
  while (cursor.skip_past("[") && cursor.number(number) && cursor.skip("]")) names.emplace_back(cursor.up_to(':'));
  return names;
}

/// "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.4<0>", and of several that NCCL takes as one device
/// "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=400000 ndevs=2".
void read_hcas(std::string_view message, std::vector<std::string>& hcas) {
  constexpr std::size_t most = 256;
  const auto name = [&](int number, std::string_view text) {
    const auto at = static_cast<std::size_t>(number);
    if (number < 0 || at >= most || text.empty()) return;
    hcas.resize(std::max(hcas.size(), at + 1));
    hcas[at] = std::string(text);
  };
  Cursor cursor(message);
  int number = 0;
  if (cursor.skip("NET/IB : Made virtual device [")) {
    if (cursor.number(number) && cursor.skip("] name=")) name(number, cursor.up_to(' '));
    return;
  }
  if (!cursor.skip("NET/IB : Using")) return;
  Cursor devices(cursor.up_to(';'));
  while (devices.skip_past("[")) {
    if (devices.number(number) && devices.skip("]")) name(number, devices.up_to(' '));  // not the "[RO]" at the end
  }
}

/// "NET/OFI Selected Provider is efa (found 4 nics)"; since 1.14: "NET/OFI Selected provider is efa, fabric is efa-direct (found
/// 16 nics)".
std::string read_provider(std::string_view message) {
  Cursor cursor(message);
  if (!cursor.skip("NET/OFI Selected Provider is ") && !cursor.skip("NET/OFI Selected provider is ")) return {};
  std::string provider(cursor.up_to(' '));
  if (provider.ends_with(',')) provider.pop_back();
  return provider;
}

/// "NET/OFI Initializing aws-ofi-nccl 1.16.2", "NET/OFI Using aws-ofi-nccl 1.5.0aws".
std::string read_plugin(std::string_view message) {
  Cursor cursor(message);
  if (!cursor.skip("NET/OFI Initializing ") && !cursor.skip("NET/OFI Using ")) return {};
  return cursor.rest().starts_with("aws-ofi-nccl ") ? std::string(cursor.rest()) : std::string();
}

bool is_multicast(std::string_view message) {
  return message.starts_with("NVLS multicast support is available") || message.starts_with("NVLS comm ") ||
         message.starts_with("Connected NVLS tree");
}

void read_line(std::string_view line, int device, LogFindings& findings) {
  constexpr std::string_view info = " NCCL INFO ", warn = " NCCL WARN ";
  if (const std::size_t at = line.find("NCCL version "); at != std::string_view::npos) {
    Cursor cursor(line.substr(at + 13));
    findings.version = std::string(cursor.up_to(' '));
  }
  const bool warning = line.find(warn) != std::string_view::npos;
  const std::size_t at = line.find(warning ? warn : info);
  if (at == std::string_view::npos) return;
  const std::string_view head = line.substr(0, at), message = line.substr(at + info.size());

  if (std::vector<std::string> interfaces = read_interfaces(message); !interfaces.empty())
    findings.interfaces = std::move(interfaces);
  read_hcas(message, findings.hcas);
  if (std::string provider = read_provider(message);
      !provider.empty() && std::find(findings.providers.begin(), findings.providers.end(), provider) == findings.providers.end())
    findings.providers.push_back(std::move(provider));
  if (std::string plugin = read_plugin(message); !plugin.empty()) findings.plugin = std::move(plugin);
  if (device != every_device) {
    // The head ends in "[2]"; that of a warning in "[2] file:line".
    int said = every_device;
    Cursor cursor(head);
    if (!cursor.skip_past(" [") || !cursor.number(said) || said != device) return;
  }
  if (warning) findings.warnings.emplace_back(message);
  if (is_multicast(message)) findings.multicast.emplace_back(message);
  if (std::optional<Connection> connection = read_connection(message)) findings.connections.push_back(std::move(*connection));
}

}  // namespace

LogFindings read_log(std::string_view text, int device) {
  LogFindings findings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    read_line(line, device, findings);
  }
  std::sort(findings.connections.begin(), findings.connections.end());
  findings.connections.erase(std::unique(findings.connections.begin(), findings.connections.end()), findings.connections.end());
  return findings;
}

}  // namespace consist::nccl
