/* The least that any isolated check must do: start a dynamic program and end it. */
int main(void) {
    return 0;
}
