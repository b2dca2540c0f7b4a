// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace memstrata {

/// How much a message matters: `warning` is something that the owner of the program wants to know, `error` is
/// memory or money that is lost from sight.
enum class LogLevel : std::uint8_t { info, warning, error };

/// Takes one message without a line end. It must not throw; it may be called from any thread and from
/// destructors, never while the library holds a lock. The text lives until it returns.
using LogSink = void (*)(LogLevel level, std::string_view text) noexcept;

/// Sets where messages go and returns the sink before. Null, the default, drops them: the library itself never
/// writes to a stream. Thread-safe.
LogSink set_log_sink(LogSink sink) noexcept;

/// The sink now, or null. Ask before a text is put together. Thread-safe.
[[nodiscard]] LogSink log_sink() noexcept;

}  // namespace memstrata
