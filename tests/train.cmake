# Whole processes that train the example task; driven by tests/python/test_train.py.
add_executable(example_train example_train.cpp ../src/train/testing/example_task.cpp)
target_link_libraries(example_train PRIVATE redline_flags redline_train)
redline_use_torch_pch(example_train)
