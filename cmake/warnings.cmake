# dcp_warnings: the options with which all our targets are compiled. The presets for development, and CI,
# add -Werror.
add_library(dcp_warnings INTERFACE)
target_compile_options(dcp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wvla>
  # Clang does not know the kernels' "GCC ivdep", and gives the same bits without it
  $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-unknown-pragmas>)
if(DCP_SANITIZE STREQUAL "thread")
  target_compile_options(dcp_warnings INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(dcp_warnings INTERFACE -fsanitize=thread)
elseif(DCP_SANITIZE)
  target_compile_options(dcp_warnings INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(dcp_warnings INTERFACE -fsanitize=address,undefined)
endif()
