// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "memstrata/core/bytes.hpp"
#include "memstrata/core/identity.hpp"
#include "memstrata/structure/buffer_segments.hpp"

namespace memstrata {

/// The figures of a range at one instant.
struct RangeFigures {
  DeviceAddress base;
  Bytes size;
  Bytes granule;
  Bytes committed;
  Bytes leased;
};

/// The figures of a buffer at one instant.
struct BufferFigures {
  DeviceAddress base;
  Bytes capacity;
  Bytes granule;
  Bytes length;
  Bytes committed;
  Bytes shared;
  Bytes leased;
};

/// One line: figures and committed runs, at most the first sixteen of them.
[[nodiscard]] std::string describe_range(const RangeFigures& figures,
                                         std::span<const ByteRange> runs);

/// One line: figures and segments, at most the first sixteen of each kind of list.
[[nodiscard]] std::string describe_buffer(const BufferFigures& figures,
                                          const BufferSegments& segments);

}  // namespace memstrata
