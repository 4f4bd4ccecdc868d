# The certificate with real runs of the example task: what must pass, and the five trainings that must not.
add_executable(tune_controls_test tune_controls_test.cpp ../src/train/testing/example_task.cpp)
target_link_libraries(tune_controls_test PRIVATE redline_flags redline_tune GTest::gtest GTest::gtest_main)
redline_use_torch_pch(tune_controls_test)
add_test(NAME tune_controls COMMAND tune_controls_test)

# Trials in turns, with real runs of the example task.
add_executable(trial_pool_test trial_pool_test.cpp ../src/train/testing/example_task.cpp)
target_link_libraries(trial_pool_test PRIVATE redline_flags redline_tune GTest::gtest GTest::gtest_main)
redline_use_torch_pch(trial_pool_test)
add_test(NAME trial_pool COMMAND trial_pool_test)

# What moves along with the batch, on real jobs.
add_executable(companions_job_test companions_job_test.cpp ../src/train/testing/example_task.cpp)
target_link_libraries(companions_job_test PRIVATE redline_flags redline_tune GTest::gtest GTest::gtest_main)
redline_use_torch_pch(companions_job_test)
add_test(NAME companions_job COMMAND companions_job_test)
