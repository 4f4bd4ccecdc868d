// Linked to LibTorch, does nothing: what loading the libraries alone costs a command.
int main() { return 0; }
