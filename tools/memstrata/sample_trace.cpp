// SPDX-License-Identifier: Apache-2.0
#include "sample_trace.hpp"

#include <filesystem>
#include <string>
#include <system_error>

#include "install_paths.hpp"

namespace memstrata::tool {

std::string sample_trace_path() {
  std::error_code failed;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path folder =
      failed ? std::filesystem::path(".") : executable.parent_path();
  return (folder / data_folder_from_executable / "samples" / sample_file)
      .lexically_normal()
      .string();
}

}  // namespace memstrata::tool
