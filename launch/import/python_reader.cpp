#include "launch/import/python_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "core/base/system_error.h"
#include "core/plugin/host.h"
#include "launch/import/python_process.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::chrono::seconds longest_wait{60};
constexpr std::int64_t most_bytes = std::int64_t{16} << 20;
constexpr const char* how_to_install =
    "; install Python (3.9 or later) with PyYAML (Debian: apt-get install python3 python3-yaml), or name the interpreter that has "
    "them by the environment variable CONSIST_PYTHON";

/// Takes the package from its folder, and nothing from the working directory.
constexpr const char* start_of_package =
    "import sys\n"
    "folder = sys.argv.pop(1)\n"
    "if sys.version_info < (3, 9): sys.exit('Python %d.%d is too old for the readers of files' % sys.version_info[:2])\n"
    "sys.path[:] = [folder] + [place for place in sys.path if place]\n"
    "from consist.readers.__main__ import main\n"
    "sys.exit(main())\n";

/// The folder in which the package lies: of a build or an installation, else of a wheel, which has the program inside the package.
std::string package_folder() {
  const fs::path bin = executable_folder();
  const fs::path places[] = {bin.parent_path() / "lib" / "consist" / "python", bin.parent_path().parent_path().parent_path()};
  for (const fs::path& place : places) {
    if (fs::is_directory(place / "consist" / "readers")) return place.string();
  }
  throw SystemError("files of other trainers are read by the Python package consist, which is not there: there is no " +
                    (places[0] / "consist" / "readers").string() + "; install Consist whole");
}

/// A file in memory.
class Memory {
 public:
  explicit Memory(const std::string& text = {}) : fd_(memfd_create("consist", MFD_CLOEXEC)) {
    if (fd_ < 0) throw SystemError("cannot make a file in memory: " + system_error_text(errno));
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t written = write(fd_, text.data() + at, text.size() - at);
      if (written <= 0) throw SystemError("cannot write a file in memory: " + system_error_text(errno));
      at += static_cast<std::size_t>(written);
    }
    lseek(fd_, 0, SEEK_SET);
  }
  ~Memory() { close(fd_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_; }
  std::string text() const {
    struct stat info {};
    fstat(fd_, &info);
    if (info.st_size > most_bytes) throw SystemError("the readers of files answer with more than 16 MiB");
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

 private:
  const int fd_;
};

std::string cannot_start(const std::string& python, int error) {
  return "files of other trainers are read by Python, and " + python + " cannot be started (" + system_error_text(error) + ")" +
         how_to_install;
}

/// Starts the readers and returns their standard output. Throws what they say on standard error.
std::string answer_of(const std::string& request, const std::string& path) {
  const std::string python = python_interpreter();
  const Memory input(request), output, errors;
  const int code = run_python({"-c", start_of_package, package_folder(), "--request"}, {input.fd(), output.fd(), errors.fd()},
                              longest_wait, "--from " + path + ": reading it");
  if (code < 0) throw UsageError(cannot_start(python, -code));
  if (code == 0) return output.text();
  const std::string said = errors.text();
  if (code == 2) throw UsageError(said);
  if (code == 1 && said.find("Traceback (most recent call last)") == std::string::npos) throw DataError(said);
  throw SystemError("--from " + path + ": its reader, " + python + ", ended with status " + std::to_string(code) +
                    (said.empty() ? "" : ", and said:\n" + said.substr(said.size() - std::min<std::size_t>(said.size(), 2000))));
}

}  // namespace

ReaderReply ask_readers(const ReaderRequest& request) {
  ordered_json asked{{"file", request.path},
                     {"set", request.replacements},
                     {"given", request.given},
                     {"each_key", request.each_key},
                     {"sizes", nullptr}};
  if (request.sizes) asked["sizes"] = {{"layers", request.sizes->layers}, {"experts", request.sizes->experts}};
  // Rows of a comparison and trials of a search have the same file.
  static std::map<std::string, std::string> answers;
  const std::string text = asked.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  const auto known = answers.find(text);
  const std::string answer = known != answers.end() ? known->second : answers[text] = answer_of(text, request.path);
  try {
    const ordered_json reply = ordered_json::parse(answer);
    ReaderReply read{.format = reply.at("format").get<std::string>(),
                     .stated = reply.at("stated").get<std::set<std::string>>(),
                     .notes = reply.at("notes").get<std::vector<std::string>>()};
    if (reply.at("version") != 1) throw SystemError("the readers of files are of another version; install Consist whole");
    for (const auto& [option, value] : reply.at("options").items()) read.options.emplace_back(option, value.get<std::string>());
    return read;
  } catch (const ordered_json::exception& error) {
    throw SystemError("--from " + request.path + ": its reader, " + python_interpreter() +
                      ", answers what is no reply: " + error.what());
  }
}

void become_import(const std::vector<std::string>& words) {
  std::vector<std::string> all{python_interpreter(), "-c", start_of_package, package_folder()};
  all.insert(all.end(), words.begin(), words.end());
  execvp(all[0].c_str(), pointers_to(all).data());
  throw UsageError(cannot_start(python_interpreter(), errno));
}

}  // namespace consist
