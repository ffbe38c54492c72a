// A browser without a window, for tests of pages.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist::test {

/// CONSIST_TEST_CHROMIUM, else Debian's; empty if there is none.
inline std::string chromium() {
  if (const char* set = std::getenv("CONSIST_TEST_CHROMIUM"); set != nullptr && *set != '\0') return set;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

struct Opened {
  std::string dom;                   ///< once its scripts have run
  std::vector<std::string> console;  ///< what they wrote to the console, errors included
};

/// Opens a file in a window of this size. As root Chromium runs only without its sandbox, and the file is the test's own.
inline Opened open_page(const std::string& path, int width = 1400, int height = 1000,
                        std::vector<std::string> more = {"--dump-dom"}) {
  const TemporaryFolder profile;
  std::vector<std::string> words{chromium(),
                                 "--headless",
                                 "--no-sandbox",
                                 "--disable-gpu",
                                 "--disable-dev-shm-usage",
                                 "--hide-scrollbars",
                                 "--force-prefers-reduced-motion",
                                 "--enable-logging=stderr",
                                 "--virtual-time-budget=20000",
                                 "--user-data-dir=" + profile.path().string(),
                                 "--window-size=" + std::to_string(width) + "," + std::to_string(height)};
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("file://" + path);
  const ChildResult result = run_child(words);
  Opened opened;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(":CONSOLE") != std::string::npos) {
      opened.console.push_back(line);
    } else {
      opened.dom += line + "\n";
    }
  }
  return opened;
}

/// The value that `script`, a function's body, returns in the page when it is ready, as JSON; null if it throws, which the page's
/// console says in `console`. The page is in a frame: no window is under 500 pixels wide, and pages are viewed in narrower ones.
inline nlohmann::json evaluate(const std::string& path, const std::string& script, std::vector<std::string>* console = nullptr,
                               int width = 1400) {
  std::string page = read_whole(path);
  const std::size_t end = page.rfind("</body>");
  if (end == std::string::npos) return nullptr;
  page.replace(end, 7,
               "<script>addEventListener('load', () => setTimeout(() => parent.postMessage(JSON.stringify((() => {" +
                   script + "})()), '*')));</script></body>");
  const TemporaryFolder folder;
  write_whole(folder / "page.html", page);
  write_whole(folder / "frame.html",
              "<!doctype html><body><pre id=\"probe\"></pre><script>addEventListener('message', (event) => "
              "document.getElementById('probe').textContent = event.data);</script><iframe src=\"page.html\" "
              "style=\"border:0;height:900px;width:" +
                  std::to_string(width) + "px\"></iframe></body>");
  const Opened opened = open_page(folder / "frame.html", width + 40);
  if (console != nullptr) *console = opened.console;
  const std::string open = "<pre id=\"probe\">";
  const std::size_t begin = opened.dom.find(open), close = opened.dom.find("</pre>", begin);
  if (begin == std::string::npos) return nullptr;
  std::string text = opened.dom.substr(begin + open.size(), close - begin - open.size());
  for (const auto& [from, to] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&nbsp;", " "}, {"&amp;", "&"}}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at)
      text.replace(at, std::string(from).size(), to);
  }
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace consist::test
