"""The door to LangChain: ``from kern_sandbox.langchain import kern_code_tool`` is langchain-kern-sandbox's."""

import importlib

__all__ = ["KernCodeTool", "KernExecutionPolicy", "KernSandbox", "kern_code_tool", "kern_execution_policy"]  # noqa: F822


def __getattr__(name: str) -> object:
    try:
        return getattr(importlib.import_module("langchain_kern_sandbox"), name)
    except ModuleNotFoundError as error:
        if error.name != "langchain_kern_sandbox":
            raise
        hint = f"{__name__} stands on it: pip install 'kern-sandbox[langchain]', in a clone ./integrations/langchain"
        raise ModuleNotFoundError(f"{error}. {hint}", name=error.name) from error
