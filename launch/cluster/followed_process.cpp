#include "launch/cluster/followed_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "core/base/started_program.h"
#include "core/base/system_error.h"

namespace consist::launch {
namespace {

/// Connected ends, of which the first is kept. A socket, since a program that has ended must not end this one by a signal.
std::array<network::Socket, 2> connected_ends() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw SystemError("cannot connect to another program: " + system_error_text(errno));
  return {network::Socket(ends[0]), network::Socket(ends[1])};
}

}  // namespace

FollowedProcess::FollowedProcess(std::vector<std::string> words, OnLine output, OnLine errors)
    : output_{{}, LineCutter(std::move(output))}, errors_{{}, LineCutter(std::move(errors))} {
  std::array<network::Socket, 2> in = connected_ends(), out = connected_ends(), err = connected_ends();
  const std::string name = words[0];
  process_ = start_program(std::move(words), {in[1].fd(), out[1].fd(), err[1].fd()}, ProgramSession::own);
  if (process_ < 0) throw SystemError("cannot start " + name + ": " + system_error_text(-process_));
  input_ = std::move(in[0]);
  output_.end = std::move(out[0]);
  errors_.end = std::move(err[0]);
}

FollowedProcess::~FollowedProcess() {
  if (status_ || process_ <= 0) return;
  int status = 0;
  wait_for_program(process_, {}, status);
}

void FollowedProcess::signal(int number) const {
  if (!status_) kill(process_, number);
}

void FollowedProcess::tell(const std::string& text) {
  unsent_ += text;
  send();
}

void FollowedProcess::send() {
  while (!unsent_.empty() && input_) {
    const ssize_t sent = ::send(input_.fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) unsent_.clear();  // it reads no more; its end says why
    if (sent <= 0) return;
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

/// False once the other end is closed.
bool FollowedProcess::read(Stream& stream) {
  if (!stream.end) return false;
  for (std::array<char, 1 << 14> block;;) {
    const ssize_t got = recv(stream.end.fd(), block.data(), block.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) break;
    stream.lines.take(std::string_view(block.data(), static_cast<std::size_t>(got)));
  }
  stream.end.close();
  stream.lines.end();
  return false;
}

bool FollowedProcess::look() {
  if (status_) return false;
  send();
  // Before the reading: what a program has said before its end is read after it.
  int status = 0;
  const bool ended = waitpid(process_, &status, WNOHANG) == process_;
  if (ended) status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  read(errors_);
  read(output_);
  if (!ended) return true;
  // Others that it has started may keep its streams open.
  for (Stream* const stream : {&errors_, &output_}) {
    if (std::exchange(stream->end, {})) stream->lines.end();
  }
  return false;
}

}  // namespace consist::launch
