# CMake package of the library @LIBRARY@, built for @VARIANT@. In your CMakeLists.txt:
#
#   find_package(@LIBRARY@ REQUIRED)     # with -D@LIBRARY@_DIR=the folder of this file, or -DCMAKE_PREFIX_PATH=the folder above it
#   target_link_libraries(application PRIVATE @LIBRARY@::@LIBRARY@)          # static
#   target_link_libraries(application PRIVATE @LIBRARY@::@LIBRARY@_shared)   # or shared
@LOADS@get_filename_component(_@LIBRARY@_lib "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
get_filename_component(_@LIBRARY@_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET @LIBRARY@::@LIBRARY@)
  add_library(@LIBRARY@::@LIBRARY@ STATIC IMPORTED)
  set_target_properties(@LIBRARY@::@LIBRARY@ PROPERTIES
    IMPORTED_LOCATION "${_@LIBRARY@_lib}/lib@LIBRARY@.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_@LIBRARY@_root}/include/@VARIANT@"
    IMPORTED_LINK_INTERFACE_LANGUAGES C)
  # An application that calls mace_threads_new needs the system's threads; one that does not is linked without them.
  if(UNIX)
    find_package(Threads QUIET)
    set_property(TARGET @LIBRARY@::@LIBRARY@ PROPERTY INTERFACE_LINK_LIBRARIES@LINKED@ m $<$<BOOL:${Threads_FOUND}>:Threads::Threads>)
  endif()
endif()

if(NOT TARGET @LIBRARY@::@LIBRARY@_shared)
  add_library(@LIBRARY@::@LIBRARY@_shared SHARED IMPORTED)
  set_target_properties(@LIBRARY@::@LIBRARY@_shared PROPERTIES
    IMPORTED_LOCATION "${_@LIBRARY@_lib}/lib@LIBRARY@.so"
    IMPORTED_SONAME "lib@LIBRARY@.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_@LIBRARY@_root}/include/@VARIANT@")
endif()

unset(_@LIBRARY@_lib)
unset(_@LIBRARY@_root)
