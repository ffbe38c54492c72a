// The plugins that these tests build, and the environment that they are found in.
#pragma once

#include <cstdlib>
#include <string>

namespace consist::test {

/// The file of the test plugin in a folder of its own (tests/plugin/CMakeLists.txt lists them).
inline std::string plugin_folder(const std::string& name) {
  return TEST_PLUGINS "/" + name;
}
inline std::string plugin_file(const std::string& name) {
  return plugin_folder(name) + "/strategy-test-" + name + ".so";
}

/// An environment variable set for a scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

/// The message of the exception of type E that `call` throws; "nothing was thrown" if none.
template <typename E, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace consist::test
