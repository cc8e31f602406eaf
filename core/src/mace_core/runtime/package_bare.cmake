# CMake package of the library @LIBRARY@, built for @VARIANT@, a machine without an operating system. In your CMakeLists.txt:
#
#   find_package(@LIBRARY@ REQUIRED)     # with -D@LIBRARY@_DIR=the folder of this file
#   target_link_libraries(firmware PRIVATE @LIBRARY@::@LIBRARY@ m)       # m: where your C library keeps sqrtf and the like
@LOADS@get_filename_component(_@LIBRARY@_lib "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
get_filename_component(_@LIBRARY@_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET @LIBRARY@::@LIBRARY@)
  add_library(@LIBRARY@::@LIBRARY@ STATIC IMPORTED)
  set_target_properties(@LIBRARY@::@LIBRARY@ PROPERTIES
    IMPORTED_LOCATION "${_@LIBRARY@_lib}/lib@LIBRARY@.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_@LIBRARY@_root}/include/@VARIANT@"
    IMPORTED_LINK_INTERFACE_LANGUAGES C)
  set_property(TARGET @LIBRARY@::@LIBRARY@ PROPERTY INTERFACE_LINK_LIBRARIES@LINKED@)
endif()

unset(_@LIBRARY@_lib)
unset(_@LIBRARY@_root)
