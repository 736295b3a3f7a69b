// Gives each block of code a button that copies its text.
document.querySelectorAll("pre > code").forEach((code) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
        try {
            await navigator.clipboard.writeText(code.textContent.trimEnd() + "\n");
            button.textContent = "Copied";
        } catch {
            // A page that is opened from a file, or without https, may not write to the clipboard: select the text.
            getSelection().selectAllChildren(code);
            button.textContent = "Selected";
        }
        setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    code.parentElement.classList.add("has-copy");
    code.parentElement.append(button);
});
