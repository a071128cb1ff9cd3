# What only the tests need. DCP_PYTHON: the first python3, in PATH or of the system, that has h5py and numpy.
dcp_find(CMOCKA cmocka cmocka.h cmocka "cmocka, for the tests" libcmocka-dev)

function(dcp_has_h5py result candidate)
  execute_process(COMMAND ${candidate} -c "import h5py, numpy" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(DCP_PYTHON python3 PATHS /usr/bin VALIDATOR dcp_has_h5py DOC "Python with h5py and numpy, for the tests")
if(NOT DCP_PYTHON)
  dcp_note_missing("a python3 with h5py and numpy, for the tests (DCP_PYTHON)" python3-h5py)
endif()
