#include "launch/cluster/ssh/ssh_connection.h"

#include <string_view>

#include "consist/text.h"
#include "launch/cluster/shell.h"
#include "launch/cluster/ssh/node_script.h"

namespace consist::launch {
namespace {

constexpr std::size_t most_words_of_ssh = 4;

/// Known complaints of ssh, and what helps.
std::string remedy(const std::string& complaint, const std::string& host) {
  const auto says = [&](std::string_view text) { return complaint.find(text) != std::string::npos; };
  if (says("Host key verification failed"))
    return "its key is not known here: connect once by hand (ssh " + host + "), or add it to ~/.ssh/known_hosts";
  if (says("Permission denied"))
    return "it must let you in without a password: a key of yours in its authorized_keys (ssh-copy-id " + host + "), or an agent";
  if (says("Could not resolve hostname")) return "name it in ssh.hosts as ssh here knows it (~/.ssh/config)";
  return "try ssh -o BatchMode=yes " + host + " true";
}

}  // namespace

SshConnection::SshConnection(const SshSettings& settings, const SshHost& host, int node, const std::string& script,
                             const JobListener& listener)
    : name_(host.text()),
      leads_(node == 0),
      listener_(listener),
      process_(
          ssh_words(settings, host, "exec bash -c " + shell_word(script) + " consist " + std::to_string(node)),
          [this](const std::string& line) { take_output(line); }, [this](const std::string& line) { take_error(line); }) {}

void SshConnection::start(const std::string& input) {
  started_ = true;
  process_.tell(input);
}

void SshConnection::signal(const char* name) {
  process_.tell(std::string(name) + "\n");
}

void SshConnection::take_output(const std::string& line) {
  if (started_) {
    if (leads_) listener_.output(line);
  } else if (line.starts_with(host_is_ready)) {
    version_ = line.substr(std::string_view(host_is_ready).size());
  } else if (line.starts_with(host_refuses)) {
    refused_ = line.substr(std::string_view(host_refuses).size());
  }
}

void SshConnection::take_error(const std::string& line) {
  last_error_ = line;
  if (started_) return listener_.errors(leads_ ? line : name_ + ": " + line);
  said_.push_back(line);
  if (said_.size() > most_words_of_ssh) said_.pop_front();
}

std::string SshConnection::refusal() const {
  std::string words;
  for (const std::string& line : said_) words += (words.empty() ? "" : "; ") + line;
  if (!refused_.empty()) return "host " + name_ + " cannot take ranks: " + refused_ + (words.empty() ? "" : " (" + words + ")");
  if (words.empty()) words = status() ? "ssh ended with status " + std::to_string(*status()) : "it does not answer";
  return "cannot reach host " + name_ + " by ssh: " + words + "; " + remedy(words, name_);
}

std::string SshConnection::last_words() const {
  return last_error_.empty() ? "ssh says nothing" : last_error_;
}

}  // namespace consist::launch
